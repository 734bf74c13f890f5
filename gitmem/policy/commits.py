"""Rules for a chain of new commits: every commit is checked, not only the tip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError
from gitmem.policy.files import File, check_content, check_place, check_twins, leaf_of
from gitmem.policy.leaves import Held, check_leaf
from gitmem.policy.objects import commit_fault, last_entry, tree_fault
from gitmem.policy.rules import Limits, Released, Violation
from gitmem.store import objects as git
from gitmem.store.objects import EMPTY_TREE, TREE_MODE, Entry, Oid, Read
from gitmem.tracepath import LeafName

Tree = dict[bytes, File]
"""Every file of a commit, by path."""
Turn = tuple[str, str | None]
_HEAD = 64
"""Bytes by which a tree is known again when it has grown: the name of its first entry, and some."""


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit that a push brings."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    changes: Mapping[bytes, File | None]
    """Files that differ from the parent (None: gone); of a merge, nothing: it is compared here."""
    trees: frozenset[Oid] = frozenset()
    """Trees below the root that differ from the parent's; of a merge, nothing."""


def listing(tree: Oid, read: Read, prefix: bytes = b"") -> Tree:
    """Every file below a tree."""
    found: Tree = {}
    for mode, name, oid in git.parse_tree(read(tree)[1]) if tree != EMPTY_TREE else []:
        if mode == TREE_MODE:
            found |= listing(oid, read, prefix + name + b"/")
        else:
            found[prefix + name] = File(mode, oid)
    return found


@dataclass(slots=True)
class _Step:
    """One commit against one of its parents."""

    commit: NewCommit
    before: Tree
    changes: Mapping[bytes, File | None]
    others: Sequence[Tree]
    """The trees of the other parents."""


def steps(commits: Iterable[NewCommit], read: Read) -> Iterator[_Step]:
    """Each commit against each of its parents, parents first, with the files it found.

    A step's trees are valid only until the next one is asked for.
    """
    ordered = list(commits)
    children = Counter(parent for commit in ordered for parent in commit.parents)
    trees: dict[Oid, Tree] = {}

    def tree_of(parent: Oid) -> Tree:
        if parent not in trees:
            trees[parent] = listing(git.Commit.parse(read(parent)[1]).tree, read)
        children[parent] -= 1
        return trees[parent] if children[parent] else trees.pop(parent)

    for commit in ordered:
        if len(commit.parents) > 1:
            after = listing(commit.tree, read)
            befores = [tree_of(parent) for parent in commit.parents]
            for i, before in enumerate(befores):
                yield _Step(commit, before, _difference(before, after), befores[:i] + befores[i + 1 :])
        else:
            before = tree_of(commit.parents[0]) if commit.parents else {}
            yield _Step(commit, before, commit.changes, ())
            # A tree that another child of the parent still needs must not change under it.
            after = dict(before) if commit.parents and commit.parents[0] in trees else before
            for path, file in commit.changes.items():
                if file is None:
                    after.pop(path, None)
                else:
                    after[path] = file
        if children[commit.oid]:
            trees[commit.oid] = after


def check_objects(commits: Iterable[NewCommit], read: Read, *, trees: bool) -> Iterator[Violation]:
    """The form of every new commit, and with `trees` of every new tree, where git has not looked."""
    seen: set[Oid] = {EMPTY_TREE}
    good: dict[bytes, tuple[bytes, Entry]] = {}
    for commit in commits:
        fault = commit_fault(read(commit.oid)[1])
        if fault:
            yield Violation("history.damaged", "", fault).by(commit.oid)
        mine = {commit.tree, *commit.trees} if trees else set()
        mine |= _trees_below(commit.tree, read) if trees and len(commit.parents) > 1 else set()
        for tree in mine - seen:
            data = read(tree)[1]
            # A tree that grows at its end begins as it did before.
            known, last = good.get(data[:_HEAD], (b"", None))
            if fault := tree_fault(data, known, last):
                yield Violation("history.damaged", "", fault).by(commit.oid)
            elif data:
                good[data[:_HEAD]] = data, last_entry(data, known, last)
        seen |= mine


def _trees_below(tree: Oid, read: Read) -> set[Oid]:
    entries = git.parse_tree(read(tree)[1]) if tree != EMPTY_TREE else []
    below = {entry.oid for entry in entries if entry.mode == TREE_MODE}
    return below.union(*(_trees_below(oid, read) for oid in below))


def _difference(before: Tree, after: Tree) -> dict[bytes, File | None]:
    changed: dict[bytes, File | None] = {p: f for p, f in after.items() if before.get(p) != f}
    return changed | dict.fromkeys(before.keys() - after.keys())


@dataclass(slots=True)
class EpochCheck:
    """The check of one epoch's new commits."""

    read: Read
    limits: Limits
    released: Released
    releases: set[LeafName] = field(default_factory=set)
    """Leaves that the commits release, or whose originals they forget."""
    _fine: set[tuple[bytes, Oid]] = field(default_factory=set)
    _tip: Tree = field(default_factory=dict)
    _blurs: dict[LeafName, Oid | None] = field(default_factory=dict)
    """Of leaves that the tip forgot: the blur it shows."""

    def run(self, commits: Iterable[NewCommit], tip_tree: Oid) -> Iterator[Violation]:
        """Check every commit; `tip_tree` is the tree of the last."""
        touched: set[LeafName] = set()
        self._tip = listing(tip_tree, self.read)
        for step in steps(commits, self.read):
            for found in self._step(step, touched):
                yield found.by(step.commit.oid)
        yield from self._turns(touched)

    def _blob(self, oid: Oid) -> bytes:
        return self.read(oid)[1]

    def _step(self, step: _Step, touched: set[LeafName]) -> Iterator[Violation]:
        yield from self._files(step)
        leaves = dict.fromkeys(leaf for path in step.changes if (leaf := leaf_of(path)) is not None)
        for leaf in leaves:
            before, after = _held(leaf, step.before), _held_after(leaf, step)
            joined = any(_held(leaf, other) == after for other in step.others)
            yield from check_leaf(
                leaf, before, after, self._blob, limits=self.limits, released=self.released, joined=joined,
                purged=self._is_purged(leaf, before, after),
            )  # fmt: skip
            touched.add(leaf)
            if after.sidecar is not None and after.sidecar != before.sidecar:
                data = self._blob(after.sidecar)
                if sidecars.is_tombstone(data) or sidecars.is_forgotten(data):
                    self.releases.add(leaf)

    def _is_purged(self, leaf: LeafName, before: Held, after: Held) -> bool:
        """Whether the tip forgot the leaf's original, and no other text than its blur was ever shown."""
        if after.sidecar is None:
            return False
        if leaf not in self._blurs:
            self._blurs[leaf] = self._blur(leaf)
        blur = self._blurs[leaf]
        return blur is not None and {before.text, after.text} <= {None, blur}

    def _blur(self, leaf: LeafName) -> Oid | None:
        file = self._tip.get(leaf.sidecar.encode())
        if file is None or not sidecars.is_forgotten(data := self._blob(file.oid)):
            return None
        try:
            return bytes.fromhex(sidecars.parse(data, leaf.sidecar).blur or "") or None
        except CorruptError:
            return None

    def _files(self, step: _Step) -> Iterator[Violation]:
        odd = [
            path
            for path, file in step.changes.items()
            if file and path not in step.before and not leaf_of(path)
        ]
        if odd:
            yield from check_twins(odd, [*step.before, *step.changes])
        for path, file in step.changes.items():
            if file is None or (path, file.oid) in self._fine:
                continue
            self._fine.add((path, file.oid))
            yield from check_place(path, file, main=False)
            if file.mode != b"160000":
                yield from check_content(path, self._blob(file.oid), self.limits)

    def _turns(self, touched: set[LeafName]) -> Iterator[Violation]:
        """No turn stands twice, as far as the new commits have to do with it."""
        meta = {leaf.sidecar.encode(): leaf for leaf in touched}
        tip = self._tip
        mine = {leaf: turn for path, leaf in meta.items() if (turn := self._turn(tip.get(path))) is not None}
        if not mine:
            return
        wanted = set(mine.values())
        seen: dict[Turn, LeafName] = {}
        for path, file in tip.items():
            leaf = leaf_of(path) if path.startswith(b"meta/") else None
            turn = self._turn(file) if leaf else None
            if leaf is None or turn not in wanted or turn is None:
                continue
            first = seen.setdefault(turn, leaf)
            if first != leaf:
                here, there = (leaf, first) if leaf in mine else (first, leaf)
                role = f" of {turn[1]}" if turn[1] else ""
                yield Violation("leaf.turn", here.path, f"turn {turn[0]!r}{role} is {there.path} already.")

    def _turn(self, file: File | None) -> Turn | None:
        if file is None:
            return None
        data = self._blob(file.oid)
        if b"turn_id" not in data:
            return None
        try:
            found = sidecars.parse(data, "sidecar")
        except CorruptError:
            return None
        return (found.turn_id, found.role) if found.turn_id else None


def _held(leaf: LeafName, tree: Tree) -> Held:
    text, sidecar = tree.get(leaf.path.encode()), tree.get(leaf.sidecar.encode())
    return Held(text.oid if text else None, sidecar.oid if sidecar else None)


def _held_after(leaf: LeafName, step: _Step) -> Held:
    def one(path: bytes) -> Oid | None:
        file = step.changes[path] if path in step.changes else step.before.get(path)
        return file.oid if file else None

    return Held(one(leaf.path.encode()), one(leaf.sidecar.encode()))
