"""Trees and histories compared file by file, modes included."""

from __future__ import annotations

from collections.abc import Iterable

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
from gitmem.store.worktrees import Change


def differences(old: Oid, new: Oid, read: Read, prefix: bytes = b"") -> dict[bytes, Change]:
    """Files that differ between two trees, as they are in each."""
    if old == new:
        return {}
    before, after = _entries(old, read), _entries(new, read)
    found: dict[bytes, Change] = {}
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        path = prefix + name
        if _is_tree(one) or _is_tree(other):
            found |= differences(_subtree(one), _subtree(other), read, path + b"/")
        files = (None if _is_tree(one) else one, None if _is_tree(other) else other)
        if files != (None, None):
            found[path] = files
    return found


def _is_tree(entry: Entry | None) -> bool:
    return entry is not None and entry.mode == TREE_MODE


def _subtree(entry: Entry | None) -> Oid:
    return entry.oid if entry is not None and _is_tree(entry) else EMPTY_TREE


def _entries(tree: Oid, read: Read) -> dict[bytes, Entry]:
    return {} if tree == EMPTY_TREE else {entry.name: entry for entry in parse_tree(read(tree)[1])}


def find_file(tree: Oid, path: bytes, read: Read) -> Entry | None:
    """A file of a tree, by its path."""
    entry: Entry | None = None
    for part in path.split(b"/"):
        entry = _entries(tree, read).get(part)
        if entry is None:
            return None
        tree = entry.oid if _is_tree(entry) else EMPTY_TREE
    return None if _is_tree(entry) else entry


def without_merges(commits: Iterable[tuple[Oid, Commit]], stage: Stage) -> list[tuple[Oid, Commit]]:
    """The commits in a row: of a merge only what none of its parents had, if there is anything."""
    found = []
    for oid, commit in commits:
        if len(commit.parents) < 2:
            found.append((oid, commit))
        elif changes := _own_changes(commit, stage):
            first = commit.parents[0]
            files = {path: after for path, (_, after) in changes.items()}
            tree = put_files(stage, Commit.parse(stage.data(first)).tree, files)
            found.append((oid, Commit(tree, (first,), commit.headers, commit.message)))
    return found


def _own_changes(commit: Commit, stage: Stage) -> dict[bytes, Change]:
    bases = [Commit.parse(stage.data(parent)).tree for parent in commit.parents]
    first, *others = (differences(base, commit.tree, stage.read) for base in bases)
    return {path: change for path, change in first.items() if all(path in other for other in others)}


def put_files(stage: Stage, tree: Oid, files: dict[bytes, Entry | None]) -> Oid:
    """A tree with some files set, or removed where None; emptied folders vanish, the root stays."""
    nested = {tuple(path.split(b"/")): entry for path, entry in files.items()}
    return _put(stage, tree, nested) or stage.put("tree", b"")


def _put(stage: Stage, tree: Oid, files: dict[tuple[bytes, ...], Entry | None]) -> Oid | None:
    entries = _entries(tree, stage.read)
    below: dict[bytes, dict[tuple[bytes, ...], Entry | None]] = {}
    for path, entry in files.items():
        if len(path) > 1:
            below.setdefault(path[0], {})[path[1:]] = entry
        elif entry is None:
            entries.pop(path[0], None)
        else:
            entries[path[0]] = entry
    for name, inner in below.items():
        old = entries.get(name)
        made = _put(stage, old.oid if old is not None and _is_tree(old) else EMPTY_TREE, inner)
        if made is not None:
            entries[name] = Entry(TREE_MODE, name, made)
        elif _is_tree(old):
            del entries[name]
    return stage.put("tree", format_tree(entries.values())) if entries else None


def between(tip: Oid, base: Oid, read: Read) -> list[tuple[Oid, Commit]]:
    """Commits that `tip` leads to and `base` does not, parents first."""
    return history([tip], read, {oid for oid, _ in history([base], read)})
