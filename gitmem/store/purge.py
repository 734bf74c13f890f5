"""The purge function, version 1: history without released leaves, as a pure function.

    purge(purge(h, a), b) = purge(purge(h, b), a) = purge(h, a ∪ b) = purge(purge(h, a ∪ b), a ∪ b)

So every repository that holds the same tombstones comes to the same commit ids without talking
to another. The rules:

1. In every tree the leaf and its sidecar are dropped, unless the sidecar is a tombstone. A folder
   that becomes empty is dropped; the root may be the empty tree.
2. Every commit stays, even one that changes nothing now. Author, committer and dates stay byte
   for byte. Parents are mapped in order, doubles removed.
3. A commit that touches such a path against any of its parents gets a fixed message without
   names, and loses its `encoding` header.
4. A rewritten commit loses `gpgsig` and `mergetag`. Commits before the first change keep their ids.
5. For a leaf whose original was forgotten, earlier commits hold the blur in place of the text,
   and earlier sidecars lose the original's id and quoted summary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gitmem import sidecar as sidecars
from gitmem.store.objects import (
    EMPTY_TREE,
    TREE_MODE,
    Commit,
    Entry,
    Oid,
    Read,
    Stage,
    format_tree,
    history,
    parse_tree,
)
from gitmem.tracepath import LeafName

VERSION = 1
MESSAGE = b"gitmem: purged\n"
_FEW = 8
_FILE_MODES = (b"100644", b"100755", b"120000")
_SIGNATURES = (b"gpgsig", b"mergetag")


@dataclass(frozen=True, slots=True)
class Victims:
    """What the history of an epoch must no longer hold."""

    released: frozenset[LeafName] = frozenset()
    forgotten: Mapping[LeafName, Oid] = field(default_factory=dict)
    """Leaves that lost their original, and the blobs of their blurs."""

    def __bool__(self) -> bool:
        return bool(self.released or self.forgotten)


@dataclass(slots=True)
class _Folder:
    """The victims below one folder of the tree."""

    dropped: set[bytes] = field(default_factory=set)
    blurred: dict[bytes, Oid] = field(default_factory=dict)
    rid: set[bytes] = field(default_factory=set)
    """Sidecars that must not name an original."""
    below: dict[bytes, _Folder] = field(default_factory=dict)
    is_meta: bool = False

    def names(self) -> set[bytes]:
        return self.dropped | self.blurred.keys() | self.rid

    def sub(self, path: str, *, is_meta: bool) -> _Folder:
        folder = self
        for part in path.encode().split(b"/"):
            folder = folder.below.setdefault(part, _Folder())
        folder.is_meta = is_meta
        return folder


Touch = frozenset[tuple[bytes, Oid]]


class Rewrite:
    """Rewrites commits without their victims, into a stage. Nothing is stored."""

    def __init__(self, read: Read, victims: Victims) -> None:
        self.stage = Stage(read)
        self.commits: dict[Oid, Oid] = {}
        """Old commit to new; equal where the commit is unaffected."""
        self._touches: dict[Oid, Touch] = {}
        self._trees: dict[tuple[Oid, int], tuple[Oid | None, Touch]] = {}
        self._tombstones: dict[Oid, bool] = {}
        self._top = _Folder()
        for leaf in victims.released:
            self._top.sub(leaf.kind, is_meta=False).dropped.add(leaf.name.encode())
            self._top.sub(f"meta/{leaf.kind}", is_meta=True).dropped.add(leaf.stem.encode() + b".yaml")
        for leaf in victims.forgotten.keys() - victims.released:
            self._top.sub(leaf.kind, is_meta=False).blurred[leaf.name.encode()] = victims.forgotten[leaf]
            self._top.sub(f"meta/{leaf.kind}", is_meta=True).rid.add(leaf.stem.encode() + b".yaml")

    def run(self, tips: Iterable[Oid]) -> None:
        """Map every commit that `tips` lead to; `commits` then has the answers."""
        for oid, commit in history(tips, self.stage.read, self.commits):
            self._map(oid, commit)

    def _map(self, oid: Oid, commit: Commit) -> None:
        tree, touch = self._tree(commit.tree, self._top)
        tree = tree or self.stage.put("tree", b"")
        self._touches[oid] = touch
        before = [self._touches[parent] for parent in commit.parents] or [frozenset()]
        touched = any(touch != other for other in before)
        parents = tuple(dict.fromkeys(self.commits[parent] for parent in commit.parents))
        renamed = touched and commit.message != MESSAGE
        if tree == commit.tree and parents == commit.parents and not renamed:
            self.commits[oid] = oid
            return
        lost = (*_SIGNATURES, b"encoding") if touched else _SIGNATURES
        headers = tuple(h for h in commit.headers if h.partition(b" ")[0] not in lost)
        message = MESSAGE if touched else commit.message
        self.commits[oid] = self.stage.put("commit", Commit(tree, parents, headers, message).format())

    def _tree(self, oid: Oid, folder: _Folder) -> tuple[Oid | None, Touch]:
        """The tree without its victims (None: empty), and which victims it held as what."""
        key = (oid, id(folder))
        if key not in self._trees:
            self._trees[key] = self._rewrite_tree(oid, folder)
        return self._trees[key]

    def _rewrite_tree(self, oid: Oid, folder: _Folder) -> tuple[Oid | None, Touch]:
        data = self.stage.data(oid)
        names = folder.names()
        if not folder.below and names:
            spare = self._is_tombstone if folder.is_meta else _never
            quick = _cut(data, names, spare) if not folder.blurred and not folder.rid else None
            if quick is not None:
                rest, touch = quick
                if rest == data:
                    return (oid if rest else None), touch
                return (self.stage.put("tree", rest) if rest else None), touch
            if len(names) <= _FEW and not any(b" " + name + b"\0" in data for name in names):
                return (oid if data else None), frozenset()
        entries: list[Entry] = []
        touched: set[tuple[bytes, Oid]] = set()
        for entry in parse_tree(data):
            if entry.name in folder.below and entry.mode == TREE_MODE:
                inner, seen = self._tree(entry.oid, folder.below[entry.name])
                touched |= {(entry.name + b"/" + name, blob) for name, blob in seen}
                kept = None if inner is None else Entry(entry.mode, entry.name, inner)
            elif entry.name in names:
                touched.add((entry.name, entry.oid))
                kept = self._victim(entry, folder)
            else:
                kept = entry
            if kept is not None:
                entries.append(kept)
        return (self.stage.put("tree", format_tree(entries)) if entries else None), frozenset(touched)

    def _is_tombstone(self, oid: Oid) -> bool:
        if oid not in self._tombstones:
            self._tombstones[oid] = sidecars.is_tombstone(self.stage.data(oid))
        return self._tombstones[oid]

    def _victim(self, entry: Entry, folder: _Folder) -> Entry | None:
        """What stands in place of a victim's entry, if anything."""
        if entry.name in folder.blurred:
            return Entry(entry.mode, entry.name, folder.blurred[entry.name])
        if not folder.is_meta:
            return None
        if entry.mode == TREE_MODE:
            return None
        data = self.stage.data(entry.oid)
        if entry.name in folder.dropped:
            return entry if sidecars.is_tombstone(data) else None
        rid = sidecars.without_original(data)
        return None if rid is None else Entry(entry.mode, entry.name, self.stage.put("blob", rid))


def _never(oid: Oid) -> bool:
    """Spare no victim."""
    del oid
    return False


def _cut(data: bytes, names: set[bytes], spare: Callable[[Oid], bool]) -> tuple[bytes, Touch] | None:
    """A tree's bytes with files cut out, without taking it apart; None where that is not safe.

    Files whose blob `spare` says are left. A name between space and NUL, 20 bytes and longer,
    cannot lie inside an id.
    """
    if len(names) > _FEW or any(len(name) < 18 for name in names):
        return None
    touched = set()
    for name in names:
        at = data.find(b" " + name + b"\0")
        if at < 0:
            continue
        start, end = at - 6, at + len(name) + 22
        if start < 0 or data[start:at] not in _FILE_MODES:
            return None
        blob = data[end - 20 : end]
        touched.add((name, blob))
        if not spare(blob):
            data = data[:start] + data[end:]
    return data, frozenset(touched)


def find_victims(read: Read, tip: Oid) -> Victims:
    """The victims that the sidecars of an epoch's tip name: its tombstones and forgotten originals."""
    released: set[LeafName] = set()
    forgotten: dict[LeafName, Oid] = {}
    for leaf, data in sidecars_at(read, tip):
        if sidecars.is_tombstone(data):
            released.add(leaf)
        elif sidecars.is_forgotten(data):
            blur = sidecars.parse(data, leaf.sidecar).blur
            if blur is not None:
                forgotten[leaf] = bytes.fromhex(blur)
    return Victims(frozenset(released), forgotten)


def sidecars_at(read: Read, tip: Oid) -> Iterator[tuple[LeafName, bytes]]:
    """Every sidecar of a commit: the leaf it speaks of, and its bytes."""
    for kind, entries in _sidecar_folders(read, Commit.parse(read(tip)[1]).tree):
        for entry in entries:
            name = entry.name.decode("utf-8", "surrogateescape")
            if entry.mode != TREE_MODE and name.endswith(".yaml"):
                yield LeafName.of_sidecar("raw" if kind == b"raw" else "hldp", name), read(entry.oid)[1]


def _sidecar_folders(read: Read, tree: Oid) -> Iterable[tuple[bytes, list[Entry]]]:
    for top in parse_tree(read(tree)[1]) if tree != EMPTY_TREE else []:
        if top.name == b"meta" and top.mode == TREE_MODE:
            for kind in parse_tree(read(top.oid)[1]):
                if kind.name in (b"raw", b"hldp") and kind.mode == TREE_MODE:
                    yield kind.name, parse_tree(read(kind.oid)[1])
