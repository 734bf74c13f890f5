"""Which names stand in a tombstone, epoch by epoch: read from the branches, and kept for the next push.

`gitmem.tombstones` in the repository is derived: for each epoch the tip that was looked at, and
the names. Only epochs that moved since are looked at again, so a push to one of thousands of
epochs is checked as quickly as to one of ten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from gitmem import host
from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError, UnavailableError
from gitmem.store import objects as git
from gitmem.store.objects import TREE_MODE, Oid, Read
from gitmem.store.repository import MAIN, Repository
from gitmem.tracepath import KINDS, Kind, LeafName

FILE = "gitmem.tombstones"
_MANY = 32
"""So many epochs may be out of date before the file is written anew."""


class Tombstones:
    """Names in tombstones of a repository's epochs."""

    def __init__(self, repository: Repository, heads: Mapping[str, Oid]) -> None:
        """`heads` are the tips of the branches by name, `main` left alone."""
        self._epochs: dict[str, set[str]] = {}
        self._coming: dict[str, set[str]] = {}
        known = _load(repository)
        fresh: dict[str, tuple[str, list[str]]] = {}
        stale = len(known.keys() - heads.keys())
        read = repository.reader()
        for epoch, tip in heads.items():
            if epoch == MAIN:
                continue
            if known.get(epoch, ("",))[0] == tip.hex():
                fresh[epoch] = known[epoch]
            else:
                stale += 1
                fresh[epoch] = (tip.hex(), _names(tip, read))
            for name in fresh[epoch][1]:
                self._epochs.setdefault(name, set()).add(epoch)
        if stale > _MANY:
            _save(repository, fresh)

    def learn(self, epoch: str, tip: Oid, read: Read) -> None:
        """Also take the tombstones of a commit that is not a branch's tip yet."""
        for name in _names(tip, read):
            self._coming.setdefault(name, set()).add(epoch)

    def epoch_of(self, leaf: LeafName, epoch: str) -> str | None:
        """The epoch in which a name stands in a tombstone that forbids it in `epoch`.

        A tombstone that is only coming does not forbid the leaf whose place it takes.
        """
        coming = self._coming.get(leaf.path, set()) - {epoch}
        return min(self._epochs.get(leaf.path, set()) | coming, default=None)


def _load(repository: Repository) -> dict[str, tuple[str, list[str]]]:
    try:
        raw = json.loads(host.read_bytes(f"{repository.folder}/{FILE}") or b"{}")
        return {epoch: (str(tip), [str(name) for name in names]) for epoch, (tip, names) in raw.items()}
    except (ValueError, TypeError, AttributeError, UnavailableError):
        return {}


def _save(repository: Repository, found: Mapping[str, tuple[str, list[str]]]) -> None:
    try:
        host.write_durable(f"{repository.folder}/{FILE}", json.dumps(found).encode())
    except UnavailableError:
        return  # it only saves time


def _names(tip: Oid, read: Read) -> list[str]:
    """`KIND/NAME` of every tombstone; none of a damaged epoch, which must not keep others from pushes."""
    try:
        found = [*_tombstones(git.Commit.parse(read(tip)[1]).tree, read)]
    except CorruptError:
        return []
    return [leaf.path for leaf in found]


def _tombstones(root: Oid, read: Read) -> Iterator[LeafName]:
    for kind, data in _meta_trees(root, read):
        for entry in git.parse_tree(data):
            name = entry.name.decode("utf-8", "replace")
            if (
                entry.mode != TREE_MODE
                and name.endswith(".yaml")
                and sidecars.is_tombstone(read(entry.oid)[1])
            ):
                yield LeafName.of_sidecar(kind, name)


def _meta_trees(root: Oid, read: Read) -> Iterator[tuple[Kind, bytes]]:
    for top in git.parse_tree(read(root)[1]) if root != git.EMPTY_TREE else []:
        if top.name == b"meta" and top.mode == TREE_MODE:
            for entry in git.parse_tree(read(top.oid)[1]):
                for kind in KINDS:
                    if entry.name == kind.encode() and entry.mode == TREE_MODE:
                        yield kind, read(entry.oid)[1]
