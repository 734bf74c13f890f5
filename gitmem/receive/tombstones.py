"""Which names stand in a tombstone, epoch by epoch: read from the branches, and kept for the next push.

`gitmem.tombstones` in the repository is derived: for each epoch the tip that was looked at, and
the names. Only epochs that moved since are looked at again, so a push to one of thousands of
epochs is checked as quickly as to one of ten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gitmem import host
from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError, UnavailableError
from gitmem.store.objects import Oid, Read
from gitmem.store.purge import sidecars_at
from gitmem.store.repository import MAIN, Repository
from gitmem.tracepath import LeafName

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
        return [leaf.path for leaf, data in sidecars_at(read, tip) if sidecars.is_tombstone(data)]
    except CorruptError:
        return []
