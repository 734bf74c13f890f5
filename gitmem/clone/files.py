"""Histories laid in a row, and trees of a few files set, modes included."""

from __future__ import annotations

from collections.abc import Iterable

from gitmem.store.objects import (
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
from gitmem.store.trees import Change, differences, is_tree, subtree


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
    entries = {entry.name: entry for entry in parse_tree(stage.data(tree))}
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
        made = _put(stage, subtree(old), inner)
        if made is not None:
            entries[name] = Entry(TREE_MODE, name, made)
        elif is_tree(old):
            del entries[name]
    return stage.put("tree", format_tree(entries.values())) if entries else None


def between(tip: Oid, base: Oid, read: Read) -> list[tuple[Oid, Commit]]:
    """Commits that `tip` leads to and `base` does not, parents first."""
    return history([tip], read, {oid for oid, _ in history([base], read)})
