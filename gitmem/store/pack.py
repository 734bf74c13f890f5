"""Pack files: written with deltas that the caller knows, and read by their index.

An epoch's trees grow by an entry at a time, so each is a small delta of the one before; writing
that delta is several times faster than letting git search for it. Format: git's
gitformat-pack(5), pack version 2 and index version 2.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gitmem import host
from gitmem.errors import CorruptError
from gitmem.store.objects import ObjectType, Oid, hash_object

_TYPES: dict[ObjectType, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_OFS_DELTA = 6
_MAX_CHAIN = 50
_LEVEL = 1
ENDINGS = (".idx", ".keep", ".rev", ".bitmap", ".mtimes", ".promisor", ".pack")
"""Files of a pack, in the order in which they are removed: without its index a pack is unseen."""
UNFINISHED = ("tmp_pack_gitmem_", "tmp_idx_gitmem_")
"""What a `PackWriter` that was killed leaves; whoever holds the repository's lock removes it."""
TEMPORARY = ("tmp_pack_", "tmp_idx_", ".tmp-")


def _size_header(kind: int, size: int) -> bytes:
    byte = (kind << 4) | (size & 15)
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    out.append(byte)
    return bytes(out)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _offset(distance: int) -> bytes:
    out = [distance & 0x7F]
    distance >>= 7
    while distance:
        distance -= 1
        out.append(0x80 | (distance & 0x7F))
        distance >>= 7
    return bytes(reversed(out))


def _copy(start: int, size: int) -> bytes:
    out = b""
    while size > 0:
        part = min(size, 0xFFFF)
        command, digits = 0x80, bytearray()
        for i in range(4):
            if byte := (start >> (8 * i)) & 0xFF:
                command |= 1 << i
                digits.append(byte)
        for i in range(2):
            if byte := (part >> (8 * i)) & 0xFF:
                command |= 0x10 << i
                digits.append(byte)
        out += bytes([command]) + bytes(digits)
        start += part
        size -= part
    return out


def _common(a: bytes, b: bytes, limit: int) -> int:
    """Length of the common beginning of `a` and `b`, at most `limit`."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_end(a: bytes, b: bytes, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle : len(a) - low] == b[len(b) - middle : len(b) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def delta(old: bytes, new: bytes) -> bytes:
    """Git's delta from `old` to `new`: the common beginning and end, and what stands between."""
    shorter = min(len(old), len(new))
    start = _common(old, new, shorter)
    end = _common_end(old, new, shorter - start)
    out = bytearray(_varint(len(old)) + _varint(len(new)) + _copy(0, start))
    middle = new[start : len(new) - end]
    for i in range(0, len(middle), 127):
        piece = middle[i : i + 127]
        out.append(len(piece))
        out += piece
    return bytes(out) + _copy(len(old) - end, end)


@dataclass(slots=True)
class _Place:
    offset: int
    crc: int
    depth: int


class PackWriter:
    """Writes one pack. Nothing is visible to git before `finish`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/tmp_pack_gitmem_{os.getpid()}_{os.urandom(4).hex()}"
        self._file = open(self._path, "w+b", buffering=1 << 20)  # noqa: SIM115
        self._file.write(b"PACK" + struct.pack(">II", 2, 0))
        self._places: dict[Oid, _Place] = {}
        self.size = 12
        """Bytes written so far."""

    def __contains__(self, oid: Oid) -> bool:
        return oid in self._places

    def __len__(self) -> int:
        return len(self._places)

    def add(
        self, kind: ObjectType, data: bytes, *, oid: Oid | None = None, base: tuple[Oid, bytes] | None = None
    ) -> Oid:
        """Write an object once; its id. `base` is a likely similar object and its bytes."""
        oid = oid or hash_object(kind, data)
        if oid in self._places:
            return oid
        if base is not None and base[0] in self._places and base[0] != oid:
            below = self._places[base[0]]
            if below.depth < _MAX_CHAIN:
                change = delta(base[1], data)
                if len(change) < len(data) // 2:
                    head = _size_header(_OFS_DELTA, len(change)) + _offset(self.size - below.offset)
                    self._write(oid, head, change, below.depth + 1)
                    return oid
        self._write(oid, _size_header(_TYPES[kind], len(data)), data, 0)
        return oid

    def _write(self, oid: Oid, head: bytes, data: bytes, depth: int) -> None:
        chunk = head + zlib.compress(data, _LEVEL)
        self._places[oid] = _Place(self.size, zlib.crc32(chunk), depth)
        self._file.write(chunk)
        self.size += len(chunk)

    def abandon(self) -> None:
        """Throw the unfinished pack away."""
        self._file.close()
        host.remove(self._path)

    def finish(self, announce: Callable[[str], None], keep: bytes | None = None) -> str:
        """Bring the pack to disk and make it visible; its path without ending.

        With `keep`, git's own repacking leaves it alone; the bytes go into its `.keep` file.
        `announce` is told the pack's name just before it becomes visible.
        """
        self._file.seek(8)
        self._file.write(struct.pack(">I", len(self._places)))
        self._file.flush()
        self._file.seek(0)
        digest = hashlib.sha1()
        while block := self._file.read(1 << 20):
            digest.update(block)
        self._file.write(digest.digest())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        index = f"{self._folder}/tmp_idx_gitmem_{os.getpid()}_{os.urandom(4).hex()}"
        host.write_new(index, self._index(digest.digest()), 0o444)
        base = f"{self._folder}/pack-{digest.hexdigest()}"
        reveal(self._path, index, base, keep, announce)
        return base

    def _index(self, pack_digest: bytes) -> bytes:
        ids = sorted(self._places)
        fan = [0] * 256
        for oid in ids:
            fan[oid[0]] += 1
        total = 0
        for i, count in enumerate(fan):
            total += count
            fan[i] = total
        offsets: list[int] = []
        large: list[int] = []
        for oid in ids:
            offset = self._places[oid].offset
            if offset < 1 << 31:
                offsets.append(offset)
            else:
                offsets.append((1 << 31) | len(large))
                large.append(offset)
        body = b"".join(
            (
                b"\377tOc" + struct.pack(">I", 2) + struct.pack(">256I", *fan),
                *ids,
                struct.pack(f">{len(ids)}I", *(self._places[oid].crc for oid in ids)),
                struct.pack(f">{len(ids)}I", *offsets),
                struct.pack(f">{len(large)}Q", *large),
                pack_digest,
            )
        )
        return body + hashlib.sha1(body).digest()


def pack_paths(folder: str) -> list[str]:
    """Every pack of an `objects/pack` folder, as paths without ending."""
    return [f"{folder}/{name[:-4]}" for name in host.list_folder(folder) if name.endswith(".idx")]


def pack_ids(base: str) -> set[Oid]:
    """Ids of all objects in a pack, from its index.

    Raises:
        CorruptError: the index is not one, or of another version.
    """
    with (
        open(base + ".idx", "rb") as file,
        contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as data,
    ):
        if len(data) < 1072 or data[:8] != b"\377tOc\0\0\0\2":
            raise CorruptError(
                f"{base}.idx is not a pack index of version 2.", hint="Run git index-pack on it."
            )
        count = int.from_bytes(data[1028:1032], "big")
        if len(data) < 1032 + 20 * count:
            raise CorruptError(f"{base}.idx is cut short.", hint="Run git index-pack on the pack.")
        names = data[1032 : 1032 + 20 * count]
    return {oid for (oid,) in struct.iter_unpack("20s", names)}


def remove_pack(base: str) -> None:
    """Remove all files of a pack, its index first."""
    for ending in ENDINGS:
        host.remove(base + ending)


def loose_ids(objects: str) -> set[Oid]:
    """Ids of all loose objects below an `objects` folder."""
    found = set()
    for folder in host.list_folder(objects):
        if len(folder) == 2:
            found |= {
                bytes.fromhex(folder + name)
                for name in host.list_folder(f"{objects}/{folder}")
                if _is_hex38(name)
            }
    return found


def _is_hex38(name: str) -> bool:
    return len(name) == 38 and not set(name) - set("0123456789abcdef")


def loose_path(objects: str, oid: Oid) -> str:
    """Where a loose object of that id stands."""
    name = oid.hex()
    return f"{objects}/{name[:2]}/{name[2:]}"


def reveal(pack: str, index: str, base: str, keep: bytes | None, announce: Callable[[str], None]) -> None:
    """Give finished files the names of a pack, the index last: without it git does not see the rest.

    `announce` is told the pack's name first, so that a kill in between leaves nothing unnoticed.
    """
    announce(os.path.basename(base))
    if keep is not None:
        host.write_durable(base + ".keep", keep)
    os.chmod(pack, 0o444)
    os.rename(pack, base + ".pack")
    os.rename(index, base + ".idx")
    host.sync_folder(os.path.dirname(base))


def repack(
    repository: str,
    ids: Iterable[Oid],
    keep: bytes | None,
    announce: Callable[[str], None],
    *,
    into: str | None = None,
) -> str | None:
    """Let git write a pack of exactly these stored objects; its path without ending.

    It stands in the folder `into`, by default among the repository's own.
    """
    lines = b"".join(oid.hex().encode() + b"\n" for oid in sorted(ids))
    if not lines:
        return None
    folder = into or f"{repository}/objects/pack"
    draft = f"{folder}/{UNFINISHED[0]}{os.getpid()}_{os.urandom(4).hex()}"
    name = (
        host.git(repository, "-c", "pack.threads=1", "pack-objects", "-q", draft, data=lines).decode().strip()
    )
    base = f"{folder}/pack-{name}"
    host.remove(f"{draft}-{name}.rev")
    reveal(f"{draft}-{name}.pack", f"{draft}-{name}.idx", base, keep, announce)
    return base


def unindexed(folder: str) -> list[str]:
    """Pack files in an `objects/pack` folder that have no index."""
    names = set(host.list_folder(folder))
    return [f"{folder}/{n}" for n in sorted(names) if n.endswith(".pack") and f"{n[:-5]}.idx" not in names]


def remove_unindexed(base: str) -> None:
    """Remove what a kill left of a pack before its index got its name."""
    if not os.path.exists(base + ".idx"):
        remove_pack(base)


def temporary_files(folder: str) -> Sequence[str]:
    """Unfinished packs in an `objects/pack` folder, whoever began them."""
    return [f"{folder}/{name}" for name in host.list_folder(folder) if name.startswith(TEMPORARY)]
