"""Recreating our commits, one by one, on another tip. Nothing is stored: all new objects stay in a stage.

Authors, dates and messages stay. Each commit is joined leaf by leaf with what stands at the other
tip, so a leaf that was written and archived offline still has its text in a commit before the
archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gitmem import manifest as manifests
from gitmem import sidecar as sidecars
from gitmem.errors import GitmemError
from gitmem.states import State
from gitmem.store.objects import EMPTY_TREE, Commit, Oid, Stage, parse_tree
from gitmem.store.purge import Victims
from gitmem.store.trees import changed_blobs, find_blob
from gitmem.sync.join import Side, is_clash, join_leaf, join_manifest
from gitmem.tracepath import Kind, LeafName, last_count, leaf_order, leaf_time, make_name

_SIGNATURES = (b"gpgsig", b"mergetag")
Turn = tuple[str, str | None]


@dataclass(slots=True)
class Outcome:
    """What replaying came to."""

    tip: Oid
    made: list[Oid] = field(default_factory=list)
    """The new commits, oldest first."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Leaves of ours that got another name: `KIND/NAME` before and after."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Leaves of ours that the other side had under another name: the same turn, the same text."""
    conflicts: list[str] = field(default_factory=list)
    """Sentences for a person, who must decide."""


def leaf_of(path: str) -> LeafName | None:
    """The leaf that a file of an epoch belongs to, as its text or its sidecar."""
    parts = path.split("/")
    kind: Kind
    for kind, ending in (("raw", ".txt"), ("hldp", ".json")):
        if len(parts) == 2 and parts[0] == kind and parts[1].endswith(ending):
            return LeafName(kind, parts[1])
        if len(parts) == 3 and parts[:2] == ["meta", kind] and parts[2].endswith(".yaml"):
            return LeafName.of_sidecar(kind, parts[2])
    return None


def side_of(stage: Stage, tree: Oid, leaf: LeafName) -> Side:
    """A leaf as a tree has it."""
    oid = find_blob(tree, leaf.sidecar, stage.read)
    return Side(find_blob(tree, leaf.path, stage.read), None if oid is None else stage.data(oid))


class Replay:
    """One branch of ours on the tip of theirs."""

    def __init__(self, stage: Stage, onto: Oid, theirs: Sequence[tuple[Oid, Commit]] = ()) -> None:
        """`theirs` are their commits that ours lack, oldest first."""
        self._stage = stage
        self._theirs = theirs
        self.outcome = Outcome(onto)
        self._names: dict[LeafName, LeafName] = {}
        self._texts: dict[bytes, bytes] = {}
        """Ids of records that got another id inside: old to new, in hexadecimal."""
        self._turns: dict[Turn, LeafName] | None = None
        self._then: dict[str, Oid | None] = {}
        """Files of a second commit: what cannot be done in one."""

    def run(self, ours: Iterable[tuple[Oid, Commit]]) -> Outcome:
        """Recreate commits, oldest first. An empty root is left out, and what changes nothing any more."""
        for _, commit in ours:
            self._recreate(commit)
        return self.outcome

    @property
    def _tree(self) -> Oid:
        return self._commit(self.outcome.tip).tree

    def _commit(self, oid: Oid) -> Commit:
        return Commit.parse(self._stage.data(oid))

    def _recreate(self, commit: Commit) -> None:
        base = self._commit(commit.parents[0]).tree if commit.parents else EMPTY_TREE
        if base == commit.tree and not commit.parents:
            return
        before = self._tree
        after = self._joined(base, commit, before)
        if after == before and base != commit.tree:
            return
        self._commit_tree(after, commit)
        if self._then:
            edits, self._then = self._then, {}
            self._commit_tree(self._stage.edit(after, edits), commit)

    def _commit_tree(self, tree: Oid, like: Commit) -> None:
        headers = tuple(h for h in like.headers if h.partition(b" ")[0] not in _SIGNATURES)
        made = Commit(tree, (self.outcome.tip,), headers, like.message)
        self.outcome.tip = self._stage.put("commit", made.format())
        self.outcome.made.append(self.outcome.tip)

    def _joined(self, base: Oid, commit: Commit, theirs: Oid) -> Oid:
        edits: dict[str, Oid | None] = {}
        leaves: set[LeafName] = set()
        for path, (was, now) in changed_blobs(base, commit.tree, self._stage.read):
            leaf = leaf_of(path)
            if leaf is not None:
                leaves.add(leaf)
            else:
                self._join_file(path, was, now, edits, commit)
        for leaf in sorted(leaves):
            self._join(leaf, base, commit, edits)
        return self._stage.edit(theirs, edits) if edits else theirs

    # -- leaves ------------------------------------------------------------------------------

    def _join(self, leaf: LeafName, base: Oid, commit: Commit, edits: dict[str, Oid | None]) -> None:
        old, new = (self._mine(side_of(self._stage, tree, leaf)) for tree in (base, commit.tree))
        target = self._names.get(leaf, leaf)
        theirs = side_of(self._stage, self._tree, target)
        if target == leaf and _clashes(old, new, theirs):
            target = self._rename(leaf, new)
            old, new = Side(), self._mine(new)
            theirs = side_of(self._stage, self._tree, target)
        if not old and new and target == leaf:
            target, new = self._take_turn(leaf, new, edits)
            theirs = theirs if target == leaf else side_of(self._stage, self._tree, target)
        try:
            joined = join_leaf(old, new, theirs, ours_later=self._ours_later(leaf, old, new, theirs, commit))
            shown_once = _shown_once(theirs, joined)
        except GitmemError as fault:
            self._conflict(f"{leaf.path}: their sidecar is kept, because {fault.message}")
            if theirs.shown is None and new.shown is not None:
                edits[target.path] = new.shown
            return
        if shown_once is not None:
            self._set(target, shown_once, joined, self._then)
        self._set(target, theirs, shown_once or joined, edits)

    def _mine(self, side: Side) -> Side:
        """A side of ours with ids of texts as they are now."""
        shown, data = side.shown, side.sidecar
        for old, new in self._texts.items():
            if shown is not None and shown.hex().encode() == old:
                shown = bytes.fromhex(new.decode())
            data = None if data is None else data.replace(old, new)
        return Side(shown, data)

    def _set(self, leaf: LeafName, old: Side, new: Side, edits: dict[str, Oid | None]) -> None:
        if new.shown != old.shown:
            edits[leaf.path] = new.shown
        if new.sidecar != old.sidecar:
            edits[leaf.sidecar] = None if new.sidecar is None else self._stage.put("blob", new.sidecar)

    def _ours_later(self, leaf: LeafName, old: Side, new: Side, theirs: Side, commit: Commit) -> bool:
        if old in (new, theirs) or new == theirs:
            return True
        return commit.committer[1] >= self._changed_at(self._names.get(leaf, leaf))

    def _changed_at(self, leaf: LeafName) -> int:
        """When their side last changed a leaf; 0 where it did not."""
        for _, commit in reversed(self._theirs):
            before = self._commit(commit.parents[0]).tree if commit.parents else EMPTY_TREE
            if side_of(self._stage, commit.tree, leaf) != side_of(self._stage, before, leaf):
                return commit.committer[1]
        return 0

    # -- names -------------------------------------------------------------------------------

    def _rename(self, leaf: LeafName, side: Side) -> LeafName:
        """Another name for a leaf of ours, whose own is taken."""
        new = self._free_raw(leaf) if leaf.kind == "raw" else self._free_record(leaf, side)
        self._names[leaf] = new
        self.outcome.renamed[leaf.path] = new.path
        return new

    def _free_raw(self, leaf: LeafName) -> LeafName:
        second = leaf_time(leaf.name)
        taken = {name for name in self._stems("raw") if name.startswith(second)}
        taken |= {new.name for new in self._names.values() if new.name.startswith(second)}
        count = leaf_order(leaf.name)[1]
        suffix = leaf.stem[16:]
        own = suffix.removesuffix(f"{count:04d}").removesuffix("-") if count > 1 else suffix
        return LeafName("raw", make_name(second, own or None, last_count([*taken, leaf.name]) + 1))

    def _stems(self, kind: Kind) -> set[str]:
        """Names of leaves at the tip, those that only a sidecar speaks of included."""
        ending = ".txt" if kind == "raw" else ".json"
        found = set()
        for folder, cut in ((kind, ending), (f"meta/{kind}", ".yaml")):
            tree = self._tree
            for part in folder.split("/"):
                entries = {e.name: e.oid for e in parse_tree(self._stage.data(tree))}
                tree = entries.get(part.encode(), EMPTY_TREE)
            names = (e.name.decode("utf-8", "surrogateescape") for e in parse_tree(self._stage.data(tree)))
            found |= {name.removesuffix(cut) + ending for name in names}
        return found

    def _free_record(self, leaf: LeafName, side: Side) -> LeafName:
        """A record names itself inside; that name follows."""
        seed = leaf.name.encode() + (side.shown or side.sidecar or b"")
        new = LeafName("hldp", f"mem_{hashlib.sha256(seed).hexdigest()[:16]}.json")
        if side.shown is not None:
            data = self._stage.data(side.shown)
            named = data.replace(f'"{leaf.stem}"'.encode(), f'"{new.stem}"'.encode(), 1)
            self._texts[side.shown.hex().encode()] = self._stage.put("blob", named).hex().encode()
        return new

    # -- turns -------------------------------------------------------------------------------

    def _take_turn(self, leaf: LeafName, side: Side, edits: dict[str, Oid | None]) -> tuple[LeafName, Side]:
        """See that a turn and role name one leaf: where a new leaf of ours goes, and as what."""
        turn = _turn(side.sidecar)
        if turn is None:
            return leaf, side
        other = self._turn_index().setdefault(turn, leaf)
        if other == leaf:
            return leaf, side
        theirs = side_of(self._stage, self._tree, other)
        if theirs.is_tombstone or _same_text(side, theirs):
            self._names[leaf] = other
            self.outcome.dropped[leaf.path] = other.path
            return other, side
        who = f" of {turn[1]}" if turn[1] else ""
        ours_first = leaf_order(leaf.name) < leaf_order(other.name)
        loser = other if ours_first else leaf
        both = f"{leaf.path} and {other.path} hold different texts"
        self._conflict(f"turn {turn[0]!r}{who}: {both}; {loser.path} lost its turn_id.")
        if not ours_first:
            return leaf, _without_turn(side)
        self._turn_index()[turn] = leaf
        self._set(other, theirs, _without_turn(theirs), edits)
        return leaf, side

    def _turn_index(self) -> dict[Turn, LeafName]:
        """Turns at their tip, and what we add to them."""
        if self._turns is None:
            self._turns = {}
            kind: Kind
            for kind in ("raw", "hldp"):
                for name in self._stems(kind):
                    leaf = LeafName(kind, name)
                    turn = _turn(side_of(self._stage, self._tree, leaf).sidecar)
                    if turn is not None:
                        self._turns[turn] = leaf
        return self._turns

    # -- other files -------------------------------------------------------------------------

    def _join_file(
        self, path: str, was: Oid | None, now: Oid | None, edits: dict[str, Oid | None], commit: Commit
    ) -> None:
        theirs = find_blob(self._tree, path, self._stage.read)
        if theirs in (was, now):
            edits |= {path: now} if theirs != now else {}
            return
        if path == manifests.FILE_NAME and now is not None and theirs is not None:
            edits[path] = self._join_manifest(was, now, theirs, commit)
            return
        self._conflict(f"{path} was changed on both sides; theirs is kept.")

    def _join_manifest(self, was: Oid | None, now: Oid, theirs: Oid, commit: Commit) -> Oid:
        try:
            base, ours, its = (
                None if oid is None else manifests.parse(self._stage.data(oid), manifests.FILE_NAME)
                for oid in (was, now, theirs)
            )
        except GitmemError as fault:
            self._conflict(f"{manifests.FILE_NAME}: theirs is kept, because {fault.message}")
            return theirs
        assert ours is not None
        assert its is not None
        later = commit.committer[1] >= max((c.committer[1] for _, c in self._theirs), default=0)
        joined = join_manifest(base, ours, its, ours_later=later)
        return theirs if joined == its else self._stage.put("blob", manifests.dump(joined))

    def _conflict(self, sentence: str) -> None:
        if sentence not in self.outcome.conflicts:
            self.outcome.conflicts.append(sentence)


def _clashes(base: Side, ours: Side, theirs: Side) -> bool:
    try:
        return is_clash(base, ours, theirs)
    except GitmemError:
        return False  # joining tells


def _shown_once(theirs: Side, joined: Side) -> Side | None:
    """The leaf as withered, where theirs archived it and ours forgot its original.

    Its blur must stand in a commit before it is archived, or the other side never gets it.
    """
    if joined.sidecar is None or not sidecars.is_forgotten(joined.sidecar):
        return None
    new = joined.parsed
    if new.state is not State.ARCHIVED or new.blur is None:
        return None
    old = theirs.parsed
    if old.forgotten or old.state is not State.ARCHIVED:
        return None
    return Side(bytes.fromhex(new.blur), sidecars.dump(replace(new, state=State.WITHERED, archived_at=None)))


def _turn(data: bytes | None) -> Turn | None:
    """The turn and role that a sidecar names."""
    if data is None or b"turn_id:" not in data:
        return None
    try:
        parsed = sidecars.parse(data, "sidecar")
    except GitmemError:
        return None
    return None if parsed.turn_id is None else (parsed.turn_id, parsed.role)


def _same_text(one: Side, other: Side) -> bool:
    return bool(_ids(one) & _ids(other))


def _ids(side: Side) -> set[str]:
    try:
        parsed = side.parsed
    except GitmemError:
        return set()
    shown = side.shown.hex() if side.shown and parsed.state is State.ACTIVE else None
    return {oid for oid in (shown, parsed.blob) if oid}


def _without_turn(side: Side) -> Side:
    return Side(side.shown, sidecars.dump(replace(side.parsed, turn_id=None)))


def onto_unpurged(
    stage: Stage, made: Iterable[tuple[Oid, Commit]], back: Mapping[Oid, Oid], victims: Victims
) -> dict[Oid, Oid]:
    """Recreate commits on a history that still holds what they have purged: each, and what it became.

    Purging the result gives `made` again, id for id. The tree of each is its own, plus what stands
    below of leaves for which it has no tombstone yet. `back` leads from purged commits to those that
    the other side has in their place.
    """
    new = dict(back)
    kept = victims.released | victims.forgotten.keys()
    for oid, commit in made:
        parents = tuple(new.get(parent, parent) for parent in commit.parents)
        under = Commit.parse(stage.data(parents[0])).tree if parents else EMPTY_TREE
        edits: dict[str, Oid | None] = {}
        done = set()
        for leaf in kept:
            found = find_blob(commit.tree, leaf.sidecar, stage.read)
            if found is not None and _is_final(stage.data(found), released=leaf in victims.released):
                done.add(leaf)
                continue
            for path in (leaf.path, leaf.sidecar):
                there = find_blob(under, path, stage.read)
                if there is not None:
                    edits[path] = there
        kept = kept - done  # what has its tombstone never comes back
        tree = stage.edit(commit.tree, edits) if edits else commit.tree
        new[oid] = stage.put("commit", Commit(tree, parents, commit.headers, commit.message).format())
    return new


def _is_final(data: bytes, *, released: bool) -> bool:
    return sidecars.is_tombstone(data) if released else sidecars.is_forgotten(data)
