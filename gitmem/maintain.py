"""Maintenance: whole closed epochs into packs of their own, refs packed, leavings swept away.

Safe at any time and twice at once: everything is under the persona's lock, and nothing that a
branch needs is ever touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gitmem import host
from gitmem.memory import Memory
from gitmem.store import epochpack, pack
from gitmem.store import objects as git
from gitmem.store.epochpack import Inventory
from gitmem.store.objects import Oid
from gitmem.store.quiet import quiet
from gitmem.store.repository import Repository


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done for one persona."""

    persona: str
    epochs: int
    """Epochs that were packed."""
    packs: int
    swept: int
    """Objects removed that a killed or outrun write had left."""
    waiting: str = ""
    """Who was busy, where nothing could be done."""

    def as_dict(self) -> dict[str, str | int]:
        out: dict[str, str | int] = {
            "persona": self.persona, "epochs": self.epochs, "packs": self.packs, "swept": self.swept,
        }  # fmt: skip
        return out | ({"waiting": self.waiting} if self.waiting else {})


def maintain(memory: Memory) -> Maintained:
    """Pack one persona's closed epochs and sweep its store."""
    repository = memory.repository
    current = next((str(epoch) for epoch in memory.epochs() if epoch.current), None)
    with repository.locked(), quiet(repository.folder, 5) as running:
        if running:
            return Maintained(memory.name, 0, 0, 0, running)
        swept = sweep(repository)
        inventory = Inventory(repository)
        waiting = epochpack.unpacked_epochs(repository, inventory, current)
        packs = 0
        for group in _groups(repository, waiting):
            base = epochpack.write_epochs(repository, group, repository.reader())
            epochpack.drop_loose_doubles(repository, base)
            packs += 1
        if packs:
            _drop_covered(repository)
        host.git(repository.folder, "pack-refs", "--all", "--prune")
        return Maintained(memory.name, len(waiting), packs, swept)


def _groups(repository: Repository, tips: dict[str, Oid]) -> Iterator[dict[str, Oid]]:
    """Epochs to pack together: up to a size, and few enough that one can be purged quickly."""
    group: dict[str, Oid] = {}
    commits = size = 0
    for name, tip in tips.items():
        count = len(git.history([tip], repository.reader()))
        bytes_ = sum(len(repository.blob(oid)) for oid in _shown(repository, tip))
        if group and (commits + count > epochpack.MAX_COMMITS or size + bytes_ > epochpack.MAX_BYTES):
            yield group
            group, commits, size = {}, 0, 0
        group[name] = tip
        commits, size = commits + count, size + bytes_
    if group:
        yield group


def _shown(repository: Repository, tip: Oid) -> list[Oid]:
    view = repository.view_at(tip)
    return [*view.names("raw").values(), *view.names("hldp").values()]


def _drop_covered(repository: Repository) -> None:
    """Remove packs whose every object stands in another pack that stays."""
    packs = Inventory(repository).packs
    count = Counter(oid for ids in packs.values() for oid in ids)
    for base in sorted(packs, key=lambda base: len(packs[base])):
        if all(count[oid] > 1 for oid in packs[base]):
            pack.remove_pack(base)
            count.subtract(packs[base])


def sweep(repository: Repository) -> int:
    """Remove objects noted as strays that no ref leads to; how many. Call under the lock, quietly."""
    strays = repository.stray_ids()
    if not strays:
        repository.clear_strays()
        return 0
    live: set[Oid] = set()
    git.reachable_from(repository.refs.all().values(), repository.reader(), live)
    gone = strays - live
    for oid in gone & pack.loose_ids(repository.objects):
        host.remove(pack.loose_path(repository.objects, oid))
    for base in pack.pack_paths(f"{repository.objects}/pack"):
        ids = pack.pack_ids(base)
        if ids & gone:
            epochpack.repack(repository, ids - gone)
            pack.remove_pack(base)
    repository.clear_strays()
    repository.bump_generation()
    return len(gone)
