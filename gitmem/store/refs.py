"""Refs: read afresh each time, and moved by compare-and-swap.

A ref is moved as git does it, by renaming `REF.lock` over it, so that pushes and gitmem exclude
each other. The lock file is made as a second name (hard link) of a draft: a lock left behind by
a killed process is known by its inode, is removed at once by the next writer, and a lock that
git holds is never touched.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from types import MappingProxyType

from gitmem import host
from gitmem.errors import CorruptError, UnavailableError
from gitmem.store.objects import Oid

HEADS = "refs/heads/"
_DRAFT = "gitmem.ref-"


class StaleRefError(Exception):
    """The ref is no longer what the caller based its change on."""


class Refs:
    """The refs of one bare repository."""

    def __init__(self, folder: str, lock_seconds: float) -> None:
        self._folder = folder
        self._lock_seconds = lock_seconds
        self._packed_path = os.path.join(folder, "packed-refs")
        self._packed_mark: tuple[int, int, int] | None = None
        self._packed: dict[str, Oid] = {}
        self._heads: tuple[dict[str, Oid], dict[str, Oid], Mapping[str, Oid]] | None = None

    def read(self, ref: str) -> Oid | None:
        """The object a ref points at, or None where there is no such ref."""
        data = host.read_bytes(f"{self._folder}/{ref}")
        if data is not None:
            return self._oid(ref, data)
        found = self._read_packed().get(ref)
        if found is None:
            self._check_there()
        return found

    def _check_there(self) -> None:
        """Make sure that a ref which is not found is absent, and not only out of reach."""
        for name in ("refs", "refs/heads"):
            host.check_folder(f"{self._folder}/{name}")
        if not os.path.isdir(f"{self._folder}/refs"):
            raise UnavailableError(f"{self._folder} has no folder refs; it is no git repository.")

    def head(self, branch: str) -> Oid | None:
        """The tip of a branch."""
        return self.read(HEADS + branch)

    def heads(self) -> Mapping[str, Oid]:
        """Tips of all branches, `main` included, by name; the same object while nothing moved."""
        loose = self._loose_ids(HEADS)
        packed = self._read_packed()
        if self._heads is None or self._heads[0] is not packed or self._heads[1] != loose:
            both = {name: oid for name, oid in packed.items() if name.startswith(HEADS)} | loose
            tips = MappingProxyType({name[len(HEADS) :]: oid for name, oid in both.items()})
            self._heads = packed, loose, tips
        return self._heads[2]

    def all(self, prefix: str = "refs/") -> dict[str, Oid]:
        """Every ref whose name begins with `prefix`, which ends in a slash."""
        loose = self._loose_ids(prefix)
        return {name: oid for name, oid in self._read_packed().items() if name.startswith(prefix)} | loose

    def _loose_ids(self, prefix: str) -> dict[str, Oid]:
        """Refs that have a file of their own; to be read before the packed ones."""
        self._check_there()
        found: dict[str, Oid] = {}
        for name in self._loose(prefix.rstrip("/")):
            data = host.read_bytes(f"{self._folder}/{name}")
            # One that went away is packed by now. A remote's HEAD is symbolic, nothing else is.
            if data is not None and not name.endswith("/HEAD"):
                found[name] = self._oid(name, data)
        return found

    def _loose(self, folder: str) -> list[str]:
        names: list[str] = []
        for name in host.list_folder(f"{self._folder}/{folder}"):
            full = f"{folder}/{name}"
            if os.path.isdir(f"{self._folder}/{full}"):
                names += self._loose(full)
            elif not name.endswith(".lock"):
                names.append(full)
        return names

    def _oid(self, ref: str, data: bytes) -> Oid:
        try:
            oid = bytes.fromhex(data.strip().decode("ascii"))
        except ValueError:
            oid = b""
        if len(oid) != 20:
            raise CorruptError(f"the ref {ref} in {self._folder} is damaged.", hint="Run gitmem doctor.")
        return oid

    def _read_packed(self) -> dict[str, Oid]:
        try:
            stat = os.stat(self._packed_path)
            mark = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            mark = (0, 0, 0)
        except OSError as fault:
            raise UnavailableError(f"{self._packed_path} cannot be read: {fault.strerror}.") from None
        if mark != self._packed_mark:
            lines = (
                (host.read_bytes(self._packed_path) or b"").decode("utf-8", "surrogateescape").splitlines()
            )
            pairs = (line.split(" ", 1) for line in lines if line[:1] not in ("#", "^", ""))
            self._packed = {name: self._oid(name, oid.encode()) for oid, name in pairs}
            self._packed_mark = mark
        return self._packed

    def update(self, ref: str, new: Oid, old: Oid | None) -> None:
        """Move `ref` from `old` (None: it must not exist) to `new`, durably.

        Raises:
            StaleRefError: it does not point at `old`.
            UnavailableError: another program holds the ref's lock.
        """
        target = f"{self._folder}/{ref}"
        draft = f"{self._folder}/{_DRAFT}{os.getpid()}-{os.urandom(4).hex()}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        host.write_new(draft, new.hex().encode() + b"\n")
        try:
            self._lock(draft, target + ".lock", ref)
            if self.read(ref) != old:
                os.unlink(target + ".lock")
                raise StaleRefError(ref)
            os.rename(target + ".lock", target)
            host.sync_folder(os.path.dirname(target))
        finally:
            host.remove(draft)

    def _lock(self, draft: str, lock: str, ref: str) -> None:
        def take() -> bool:
            try:
                os.link(draft, lock)
            except FileExistsError:
                return False
            return True

        if not host.wait(take, min(10.0, self._lock_seconds)):
            raise UnavailableError(
                f"{ref} is locked by another program ({lock}).",
                hint="If no push or other git command is running, remove that file.",
            )

    def recover(self, names: list[str]) -> None:
        """Undo what a killed `update` left. Call only while holding the repository's lock.

        `names` are the files in the repository's folder.
        """
        for draft in (f"{self._folder}/{name}" for name in names if name.startswith(_DRAFT)):
            for lock in self._all_locks():
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samefile(draft, lock):
                        host.remove(lock)
            host.remove(draft)

    def _all_locks(self) -> list[str]:
        walked = os.walk(f"{self._folder}/refs")
        return [f"{where}/{name}" for where, _, names in walked for name in names if name.endswith(".lock")]

    def _locks(self, folder: str) -> list[str]:
        full = f"{self._folder}/{folder}"
        return [f"{full}/{name}" for name in host.list_folder(full) if name.endswith(".lock")]

    def stale_locks(self) -> list[str]:
        """Lock files of branches that exist right now, for a report."""
        return self._locks(HEADS.rstrip("/"))

    def delete(self, ref: str) -> None:
        """Remove a ref, loose and packed."""
        host.git(self._folder, "update-ref", "--no-deref", "-d", ref)
