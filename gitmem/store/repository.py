"""One bare repository: reading it fresh, and committing to it so that a kill leaves no harm.

Files of gitmem beside git's own, all local to the repository:

    gitmem.lock         held by whoever writes
    gitmem.generation   changes with every purge; readers then reopen the store
    gitmem.strays       ids of objects written by a commit that did not come about
    gitmem.purge/       journals of purges under way (see erase)
    gitmem.purged       ids of commits that were purged and never return
    gitmem.inflight/    pushes that were checked and have not ended
    gitmem.incoming-*/  what a sync fetches, until it is purged and taken in (see wire)
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pygit2
from pygit2.enums import ConfigLevel, RepositoryOpenFlag
from pygit2.enums import ObjectType as GitType

from gitmem import host
from gitmem import sidecar as sidecars
from gitmem.errors import ConflictError, CorruptError, UnavailableError
from gitmem.sidecar import Sidecar
from gitmem.store import loose
from gitmem.store import objects as git
from gitmem.store.objects import ObjectType, Oid, Person, Stage
from gitmem.store.pack import UNFINISHED, PackWriter, pack_ids, remove_unindexed
from gitmem.store.refs import HEADS, Refs, StaleRefError
from gitmem.tracepath import KINDS, Kind, LeafName, natural_order

MAIN = "main"
LOCK = "gitmem.lock"
GENERATION = "gitmem.generation"
STRAYS = "gitmem.strays"
JOURNALS = "gitmem.purge"
INCOMING = "gitmem.incoming-"
_TRIES = 10
_TYPES: dict[int, ObjectType] = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_BULK = 400
"""From this many new objects on, a commit writes a pack instead of single files."""
_MAX_VIEWS = 4096
_MANY_REFS = 64

CONFIG = {
    "gc.auto": "0",
    "receive.autogc": "false",
    "maintenance.auto": "false",
    "core.logAllRefUpdates": "false",
    "core.fsync": "all",
    "receive.fsckObjects": "true",
    "receive.fsck.zeroPaddedFilemode": "error",
    "receive.fsck.badFilemode": "error",
    "receive.fsck.nulInCommit": "error",
    "uploadpack.allowReachableSHA1InWant": "false",
    "uploadpack.allowAnySHA1InWant": "false",
}

_open_lock = threading.Lock()
T = TypeVar("T")


@contextlib.contextmanager
def _sealed() -> Iterator[None]:
    """Let libgit2 open or make a repository deaf to the user's own git configuration."""
    levels = [ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL]
    with _open_lock:
        settings = pygit2.settings
        before = {level: settings.search_path[level] for level in levels}
        try:
            for level in levels:
                settings.search_path[level] = ""
            yield
        finally:
            for level in levels:
                settings.search_path[level] = before[level]


def _open(folder: str, borrowed: str) -> pygit2.Repository:
    settings = pygit2.settings
    for kind in (GitType.TREE, GitType.BLOB):  # trees of big epochs and long texts stay cached
        settings.cache_object_limit(kind, 1 << 20)
    settings.owner_validation = False  # who may open a home is decided by its mode
    with _sealed():
        try:
            opened = pygit2.Repository(folder, RepositoryOpenFlag.NO_SEARCH | RepositoryOpenFlag.BARE)
            if borrowed:
                opened.odb.add_disk_alternate(borrowed)
        except (pygit2.GitError, KeyError) as fault:
            raise UnavailableError(f"{folder} cannot be opened as a git repository: {fault}.") from None
        return opened


class View:
    """An epoch as one commit has it. Reads are by name, without a walk."""

    def __init__(self, repository: Repository, tip: Oid) -> None:
        self._repository = repository
        self._odb = repository.odb()
        self.tip = tip
        root = repository.commit_at(tip).tree
        self._kinds = {kind: repository.tree_at(root, kind) for kind in KINDS}
        meta = repository.tree_at(root, "meta")
        self._meta = {kind: meta and repository.tree_at(meta.id.raw, kind) for kind in KINDS}

    def leaf(self, leaf: LeafName) -> Oid | None:
        """Id of the leaf's blob in the branch."""
        return _entry(self._kinds[leaf.kind], leaf.name)

    def sidecar_id(self, leaf: LeafName) -> Oid | None:
        """Id of the blob of the leaf's sidecar."""
        return _entry(self._meta[leaf.kind], leaf.stem + ".yaml")

    def sidecar(self, leaf: LeafName, *, lenient: bool = False) -> Sidecar | None:
        """The leaf's sidecar; with `lenient` one that is not a sidecar counts as empty.

        Raises:
            CorruptError: it cannot be read.
        """
        oid = self.sidecar_id(leaf)
        return None if oid is None else self._repository.sidecar(oid, leaf.sidecar, lenient=lenient)

    def blob(self, oid: Oid) -> bytes:
        """A blob's bytes, through the handle that this view was made with."""
        try:
            data: bytes = self._odb.read(pygit2.Oid(raw=oid))[1]
        except (KeyError, pygit2.GitError):
            return self._repository.blob(oid)
        return data

    def names(self, kind: Kind) -> dict[str, Oid]:
        """Leaves of that kind in the branch, and their blobs."""
        return _entries(self._kinds[kind])

    def sidecar_ids(self, kind: Kind) -> dict[LeafName, Oid]:
        """Leaves of that kind with a sidecar, and its blob."""
        found = _entries(self._meta[kind]).items()
        return {LeafName.of_sidecar(kind, name): oid for name, oid in found if name.endswith(".yaml")}


def _entry(tree: Any, name: str) -> Oid | None:
    if tree is None:
        return None
    try:
        oid: bytes = tree[name].id.raw
    except KeyError:
        return None
    return oid


def _entries(tree: Any) -> dict[str, Oid]:
    if tree is None:
        return {}
    return {e.name.decode("utf-8", "surrogateescape"): e.oid for e in git.parse_tree(tree.read_raw())}


class _Handle(threading.local):
    """What one thread holds open: libgit2's handle and everything read through it."""

    mark: tuple[int, int] | str | None = "closed"
    repository: pygit2.Repository | None = None
    views: dict[str, View]
    sidecars: dict[Oid, Sidecar]
    removals: dict[Oid, dict[str, str]]


class Repository:
    """A bare repository of one persona's memory."""

    def __init__(self, folder: str, lock_seconds: float = 60, *, borrowed: str = "") -> None:
        """`borrowed` is a further folder of objects to read from: the quarantine of a push."""
        self.folder = folder
        self._borrowed = borrowed
        self.objects = f"{folder}/objects"
        self.lock_seconds = lock_seconds
        self.refs = Refs(folder, lock_seconds)
        self._handle = _Handle()
        self._owner = threading.local()
        self.on_lock: list[Callable[[], None]] = []
        """Called each time the lock was taken, before anything else: unfinished work is resumed."""

    @classmethod
    def create(cls, folder: str, lock_seconds: float = 60) -> Repository:
        """Make an empty bare repository."""
        with _sealed():
            made = pygit2.init_repository(folder, bare=True, initial_head=MAIN, template_path=None)
            for key, value in CONFIG.items():
                made.config[key] = value
            made.free()
        return cls(folder, lock_seconds)

    def close(self) -> None:
        """Let go of all files."""
        if self._handle.repository is not None:
            self._handle.repository.free()
        self._handle = _Handle()

    # -- reading -----------------------------------------------------------------------------

    def _fresh(self) -> pygit2.Repository:
        """libgit2's handle, reopened where a purge happened since: an old one serves purged text."""
        try:
            stat = os.stat(f"{self.folder}/{GENERATION}")
            mark: tuple[int, int] | None = (stat.st_ino, stat.st_mtime_ns)
        except FileNotFoundError:
            mark = None
        except OSError as fault:
            raise UnavailableError(f"{self.folder} cannot be read: {fault.strerror}.") from None
        handle = self._handle
        if handle.repository is None or handle.mark != mark:
            if handle.repository is not None:
                handle.repository.free()
            handle.repository = _open(self.folder, self._borrowed)
            handle.mark = mark
            handle.views = {}
            handle.sidecars = {}
            handle.removals = {}
        return handle.repository

    def bump_generation(self) -> None:
        """Tell every reader, in every process, to reopen the store."""
        path = f"{self.folder}/{GENERATION}"
        count = int((host.read_bytes(path) or b"0").strip() or b"0") + 1
        host.write_durable(path, b"%d\n" % count)

    def read(self, oid: Oid) -> tuple[ObjectType, bytes]:
        """An object's type and bytes.

        Raises:
            CorruptError: it is missing or damaged; the message holds its id.
        """
        try:
            kind, data = self._fresh().odb.read(pygit2.Oid(raw=oid))
        except (KeyError, pygit2.GitError) as fault:
            message = f"the object {oid.hex()} in {self.folder} is missing or damaged: {fault}."
            raise CorruptError(
                message, hint="Run gitmem doctor; restore it from a clone or a backup."
            ) from None
        return _TYPES[kind], data

    def odb(self) -> Any:
        """libgit2's object store, fresh."""
        return self._fresh().odb

    def reader(self) -> git.Read:
        """A `read` for long walks under the lock: it looks only once whether the store changed."""
        odb = self._fresh().odb

        def read(oid: Oid) -> tuple[ObjectType, bytes]:
            try:
                kind, data = odb.read(pygit2.Oid(raw=oid))
            except (KeyError, pygit2.GitError):
                return self.read(oid)
            return _TYPES[kind], data

        return read

    def __contains__(self, oid: Oid) -> bool:
        return pygit2.Oid(raw=oid) in self._fresh().odb

    def blob(self, oid: Oid) -> bytes:
        """A blob's bytes."""
        return self.read(oid)[1]

    @property
    def is_strict(self) -> bool:
        """Whether git itself refuses pushed trees of another form than its own."""
        config = self._fresh().config
        return all(key in config and config[key] == CONFIG[key] for key in CONFIG if "fsck" in key)

    def is_below(self, old: Oid, new: Oid) -> bool:
        """Whether the commit `old` is `new`, or one of its ancestors."""
        try:
            below: bool = old == new or self._fresh().descendant_of(pygit2.Oid(raw=new), pygit2.Oid(raw=old))
        except (KeyError, ValueError, pygit2.GitError):
            return False
        return below

    def commit_at(self, oid: Oid) -> git.Commit:
        """A commit by its id."""
        return git.Commit.parse(self.read(oid)[1])

    def tree_at(self, tree: Oid, name: str) -> Any:
        """The subtree `name` of a tree as libgit2's object, or None."""
        repository = self._fresh()
        try:
            found = repository[pygit2.Oid(raw=tree)]
            child = found[name] if isinstance(found, pygit2.Tree) else None
        except KeyError:
            self.read(tree)  # raises where the tree itself is missing
            return None
        except pygit2.GitError:
            self.read(tree)
            return None
        return child if isinstance(child, pygit2.Tree) else None

    def sidecar(self, oid: Oid, where: str, *, lenient: bool = False) -> Sidecar:
        """The sidecar in a blob, parsed once; with `lenient` an unreadable one counts as empty."""
        self._fresh()
        memo = self._handle.sidecars
        found = memo.get(oid)
        if found is None:
            data = self.blob(oid)
            try:
                found = sidecars.parse(data, f"{where} in {self.folder}")
            except CorruptError:
                if lenient:
                    return Sidecar()
                raise
            if len(memo) > 65536:
                memo.clear()
            memo[oid] = found
        return found

    def view(self, epoch: str) -> View | None:
        """The epoch as it is now, or None where there is no such epoch."""
        tip = self.refs.read(HEADS + epoch)
        if tip is None:
            return None
        self._fresh()  # a purge throws the views away
        views = self._handle.views
        view = views.get(epoch)
        if view is None or view.tip != tip:
            if len(views) > _MAX_VIEWS:
                views.clear()
            view = views[epoch] = self.view_at(tip)
        return view

    def view_at(self, tip: Oid) -> View:
        """The epoch as it was at a commit."""
        return View(self, tip)

    def steady(self, read: Callable[[], T]) -> T:
        """What `read` gives, read again where a purge took objects away under it.

        Raises:
            CorruptError: an object is missing though nobody purges.
        """
        before = None
        for _ in range(_TRIES):
            try:
                return read()
            except CorruptError:
                now = self.refs.all(), host.read_bytes(f"{self.folder}/{GENERATION}")
                if now == before and not host.list_folder(f"{self.folder}/{JOURNALS}"):
                    raise
                before = now
                self.close()
        return read()

    def epochs(self) -> list[str]:
        """Names of all epochs, in natural order."""
        return sorted((name for name in self.refs.heads() if name != MAIN), key=natural_order)

    def file(self, branch: str, name: str) -> bytes | None:
        """A file in the root of a branch, or None."""
        tip = self.refs.head(branch)
        if tip is None:
            return None
        entries = git.parse_tree(self.read(self.commit_at(tip).tree)[1])
        return next((self.blob(e.oid) for e in entries if e.name == name.encode()), None)

    @property
    def label(self) -> str | None:
        """The short word that sets names given here apart from another home's; None without a remote."""
        try:
            return str(self._fresh().config["gitmem.label"])
        except KeyError:
            return None

    def removals_of(self, tip: Oid) -> Mapping[str, str]:
        """Leaves that this history removed: path to the id of the latest commit that did so."""
        self._fresh()
        if tip not in self._handle.removals:
            self.learn_removals({"": tip})
        return self._handle.removals[tip]

    def learn_removals(self, tips: Mapping[str, Oid]) -> None:
        """Find what `removals_of` answers for many epochs, in one walk by git."""
        out = host.git(
            self.folder, "log", "-z", "--no-renames", "--diff-merges=separate", "--diff-filter=D",
            "--name-only", "--source", "--stdin", "--format=%x01%S %H", "--", *KINDS,
            data=b"".join(tip.hex().encode() + b"\n" for tip in tips.values()),
        )  # fmt: skip
        self._fresh()
        memo = self._handle.removals
        if len(memo) > _MAX_VIEWS:
            memo.clear()
        for tip in tips.values():
            memo[tip] = {}
        for part in out.split(b"\x01")[1:]:
            head, *paths = (field.lstrip(b"\n") for field in part.split(b"\0"))
            source, commit = head.decode("ascii").split()
            found = memo[bytes.fromhex(source)]
            for path in paths:
                if path:
                    found.setdefault(path.decode("utf-8", "surrogateescape"), commit)

    # -- writing -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self, seconds: float | None = None) -> Iterator[None]:
        """Hold the repository: no other gitmem process or thread writes to it meanwhile.

        What a killed process left is put right first. `seconds` is how long to wait for another
        holder, by default as long as the settings say.

        Raises:
            ConflictError: this thread holds it already, in an open transaction.
            UnavailableError: someone else held it too long.
        """
        if getattr(self._owner, "held", False):
            raise ConflictError(
                "a transaction on this persona is open in this thread.",
                hint="Use the transaction's own methods, or end it first.",
            )
        with host.locked(f"{self.folder}/{LOCK}", self.lock_seconds if seconds is None else seconds):
            self._owner.held = True
            try:
                self._recover()
                for resume in self.on_lock:
                    # What cannot go on now stays in its journal; doctor shows it.
                    with contextlib.suppress(UnavailableError):
                        resume()
                yield
            finally:
                self._owner.held = False

    def _recover(self) -> None:
        names = host.list_folder(self.folder)
        self.refs.recover(names)
        self.drop_incoming(names)
        for folder in (self.folder, f"{self.folder}/{JOURNALS}", f"{self.objects}/pack"):
            for name in host.list_folder(folder):
                if name.startswith(UNFINISHED) or host.is_draft(name):
                    host.remove(f"{folder}/{name}")
        if STRAYS in names:
            for line in (
                (host.read_bytes(f"{self.folder}/{STRAYS}") or b"").decode("ascii", "replace").split()
            ):
                if line.startswith("pack-"):
                    remove_unindexed(f"{self.objects}/pack/{line}")
            for name in host.list_folder(self.objects):
                if name.startswith(("tmp_object_git2_", loose.UNFINISHED)):
                    host.remove(f"{self.objects}/{name}")

    def drop_incoming(self, names: list[str] | None = None) -> None:
        """Remove what killed syncs had fetched; `names` are those in the repository's folder."""
        for name in host.list_folder(self.folder) if names is None else names:
            mark = name.removeprefix(INCOMING).rpartition("-")[0]
            if name.startswith(INCOMING) and mark[:1].isdigit() and not host.is_running(mark, "."):
                with contextlib.suppress(OSError):  # what its git still writes goes the next time
                    host.remove_tree(Path(f"{self.folder}/{name}"))

    def commit(
        self,
        branch: str,
        changes: Mapping[str, bytes | None],
        message: str,
        *,
        base: Oid | None,
        author: Person,
        committer: Person,
    ) -> Oid:
        """Commit files on top of `base` (None: the branch's first commit) and move the branch.

        Call under `locked`. Durable when it returns.

        Raises:
            StaleRefError: the branch is not at `base`.
        """
        stage = Stage(self.read)
        edits = {path: None if data is None else stage.put("blob", data) for path, data in changes.items()}
        tree = stage.edit(git.EMPTY_TREE if base is None else self.commit_at(base).tree, edits)
        parents = () if base is None else (base,)
        made = stage.put("commit", git.make_commit(tree, parents, author, committer, message))
        with self.strays() as note:
            note("\n".join(oid.hex() for oid in stage.new))
            self.store(stage, note)
            self.refs.update(HEADS + branch, made, base)
            if len(stage.new) < _BULK:
                # A `git gc --prune=now` may have taken for garbage what no ref led to a moment ago.
                loose.write(self.objects, stage.new)
        return made

    @contextlib.contextmanager
    def strays(self) -> Iterator[Callable[[str], None]]:
        """Note new objects while they are not yet part of any branch.

        Yields a function that notes an object's id, or the name of a pack. If the block fails, or
        the process is killed in it, the notes stay, and whoever sweeps the store removes those of
        the objects that nothing came to need.
        """
        path = f"{self.folder}/{STRAYS}"
        with open(path, "ab", buffering=0) as file:
            size = file.tell()

            def note(line: str) -> None:
                file.write(line.encode("ascii") + b"\n")

            yield note
        if size:
            os.truncate(path, size)
        else:
            host.remove(path)

    def store(self, stage: Stage, note: Callable[[str], None]) -> None:
        """Bring a stage's objects to disk: each in a file, or many in one pack, which is noted."""
        if len(stage.new) < _BULK:
            loose.write(self.objects, stage.new)
            return
        writer = PackWriter(f"{self.objects}/pack")
        try:
            for oid, (kind, data) in stage.new.items():
                writer.add(kind, data, oid=oid)
        except BaseException:
            writer.abandon()
            raise
        writer.finish(note)

    def tidy_refs(self) -> None:
        """Pack the refs where many have files of their own: each of those is read at every look."""
        if len(host.list_folder(f"{self.folder}/{HEADS}")) > _MANY_REFS:
            with contextlib.suppress(CorruptError):  # a push holds the lock; the next time will do
                host.git(self.folder, "pack-refs", "--all", "--prune")

    def stray_ids(self) -> set[Oid]:
        """Objects noted by `strays` and not yet swept."""
        found: set[Oid] = set()
        for line in (host.read_bytes(f"{self.folder}/{STRAYS}") or b"").decode("ascii", "replace").split():
            if line.startswith("pack-"):
                base = f"{self.objects}/pack/{line}"
                found |= pack_ids(base) if os.path.exists(base + ".idx") else set()
            elif len(line) == 40:
                found.add(bytes.fromhex(line))
        return found

    def clear_strays(self) -> None:
        """Forget the notes, after the objects were removed."""
        host.remove(f"{self.folder}/{STRAYS}")


def retry_stale(attempt: Callable[[], T], tries: int = 100) -> T:
    """Run `attempt` again while a push is faster than it.

    Raises:
        ConflictError: it never got through.
    """
    for _ in range(tries):
        try:
            return attempt()
        except StaleRefError:
            continue
    raise ConflictError("other writers were faster a hundred times.", hint="Try again.")
