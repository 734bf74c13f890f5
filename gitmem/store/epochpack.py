"""Packs that hold whole epochs, and what they say about it.

Such a pack is closed: it holds everything that the tips named in its `.keep` file lead to, and
nothing else. So its index is the list of what those epochs need, and a release in another epoch
need not walk them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gitmem import host
from gitmem.store import objects as git
from gitmem.store import pack
from gitmem.store.objects import Oid, Read
from gitmem.store.pack import PackWriter, loose_ids, loose_path, pack_ids, pack_paths
from gitmem.store.refs import HEADS
from gitmem.store.repository import MAIN, Repository

_MARK = b"gitmem epochs\n"
MAX_BYTES = 16 * 1024 * 1024
MAX_COMMITS = 2000
_SMALL_PACKS = 8


def keep_note(tips: Mapping[str, Oid]) -> bytes:
    """What the `.keep` file of a pack of these epochs says."""
    return _MARK + b"".join(b"%s %s\n" % (name.encode(), oid.hex().encode()) for name, oid in tips.items())


def read_keep(base: str) -> dict[str, Oid]:
    """Epochs, and their tips, that a pack is known to hold whole; empty for any other pack."""
    data = host.read_bytes(base + ".keep") or b""
    if not data.startswith(_MARK):
        return {}
    pairs = (line.split() for line in data[len(_MARK) :].decode("ascii", "replace").splitlines())
    return {pair[0]: bytes.fromhex(pair[1]) for pair in pairs if len(pair) == 2 and len(pair[1]) == 40}


class Inventory:
    """Which objects a repository's files hold, each index read once."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self.packs: dict[str, set[Oid]] = {}
        self.keeps: dict[str, dict[str, Oid]] = {}
        self.loose: set[Oid] = set()
        self.refresh()

    def refresh(self) -> list[str]:
        """Look again; packs that were not there before."""
        present = pack_paths(f"{self._repository.objects}/pack")
        fresh = [base for base in present if base not in self.packs]
        self.packs = {base: self.packs.get(base) or pack_ids(base) for base in present}
        self.keeps = {base: read_keep(base) for base in present}
        self.loose = loose_ids(self._repository.objects)
        return fresh

    def closed(self, tips: Mapping[str, Oid], read: Read, without: Iterable[str] = ()) -> list[str]:
        """Packs of whole epochs that are as their note says, or whose epochs have only grown.

        Everything in them is needed. `tips` are the branches now; packs that hold an epoch of
        `without` are left out.
        """
        left_out = set(without)
        return [
            base
            for base, noted in self.keeps.items()
            if noted and not left_out & noted.keys() and _still_holds(noted, tips, read)
        ]

    def outside(self, closed: Collection[str]) -> set[Oid]:
        """Objects that stand loose, or in a pack that is not one of `closed`."""
        return self.loose.union(*(ids for base, ids in self.packs.items() if base not in closed))


class Needed(set[Oid]):
    """Objects that refs need: those met on a walk, and all of some closed packs, which are not copied."""

    def __init__(self, closed: Iterable[set[Oid]], more: Iterable[Oid] = ()) -> None:
        super().__init__(more)
        self._closed = list(closed)

    def __contains__(self, oid: object) -> bool:
        return super().__contains__(oid) or any(oid in ids for ids in self._closed)


def _still_holds(noted: Mapping[str, Oid], tips: Mapping[str, Oid], read: Read) -> bool:
    for name, oid in noted.items():
        tip = tips.get(name)
        if tip is None:
            return False
        if tip != oid and all(found != oid for found in _below(tip, read)):
            return False
    return True


def _below(tip: Oid, read: Read) -> Iterator[Oid]:
    for oid, commit in reversed(git.history([tip], read)):
        yield oid
        yield from commit.parents


def write_epochs(
    repository: Repository,
    tips: Mapping[str, Oid],
    read: Read,
    *,
    closed: bool = True,
    without: Iterable[Oid] = (),
) -> str:
    """Write one pack of everything that `tips` lead to; its path without ending.

    Commits of `without`, and those below them, are left out; the pack is then not `closed`.
    """
    writer = PackWriter(f"{repository.objects}/pack")
    try:
        add_history(writer, tips.values(), read, set(without))
    except BaseException:
        writer.abandon()
        raise
    with repository.strays() as note:
        return writer.finish(note, keep_note(tips) if closed else None)


def repack(repository: Repository, ids: Iterable[Oid], keep: bytes | None = None) -> None:
    """Let git write a pack of exactly these objects."""
    with repository.strays() as note:
        pack.repack(repository.folder, ids, keep, note)


def add_history(writer: PackWriter, tips: Iterable[Oid], read: Read, without: Collection[Oid] = ()) -> int:
    """Add everything that `tips` lead to, trees as deltas of the one before; how many commits."""
    commits = 0
    last: dict[bytes, tuple[Oid, bytes]] = {}
    for tip in tips:
        for item in git.items([tip], read, set(without)):
            if item.kind == "blob":
                if item.oid not in writer:
                    writer.add("blob", read(item.oid)[1], oid=item.oid)
                continue
            assert item.data is not None
            commits += item.kind == "commit"
            base = last.get(item.path) if item.kind == "tree" else None
            writer.add(item.kind, item.data, oid=item.oid, base=base)
            if item.kind == "tree":
                last[item.path] = (item.oid, item.data)
        last.clear()
    return commits


def drop_loose_doubles(repository: Repository, base: str) -> None:
    """Remove loose files of objects that a finished pack holds as well."""
    for oid in pack_ids(base) & loose_ids(repository.objects):
        host.remove(loose_path(repository.objects, oid))


def unpacked_epochs(repository: Repository, inventory: Inventory, open_epoch: str | None) -> dict[str, Oid]:
    """Closed epochs to pack, in natural order: those that no pack holds whole at their tip.

    Once there are several small packs, those in them as well.
    """
    small = [
        base for base, noted in inventory.keeps.items() if noted and len(inventory.packs[base]) < MAX_COMMITS
    ]
    merged = set(small) if len(small) > _SMALL_PACKS else set()
    kept = {
        name: oid
        for base, noted in inventory.keeps.items()
        if base not in merged
        for name, oid in noted.items()
    }
    tips = {name: repository.refs.read(HEADS + name) for name in repository.epochs()}
    return {
        name: tip
        for name, tip in tips.items()
        if name not in (MAIN, open_epoch) and tip is not None and kept.get(name) != tip
    }
