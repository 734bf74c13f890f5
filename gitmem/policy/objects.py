"""Rules for git's own objects: each tree and commit has the one form that every reader understands alike.

A tree with a doubled name, out of order, or with a mode spelled otherwise is read differently by
different programs: one would show what another has purged.
"""

from __future__ import annotations

from itertools import pairwise

from gitmem.errors import CorruptError
from gitmem.policy.rules import shown
from gitmem.store.objects import TREE_MODE, Commit, Entry, parse_tree

_MODES = frozenset([b"100644", b"100755", b"120000", b"160000", TREE_MODE])
_HEADERS = frozenset([b"author", b"committer", b"encoding", b"gpgsig", b"gpgsig-sha256", b"mergetag"])


def tree_fault(data: bytes, good: bytes = b"", last: Entry | None = None) -> str:
    """What is wrong with a tree's bytes; empty where nothing is.

    `good` is a tree in which nothing is wrong, and `last` its last entry: where `data` goes on after
    it, only what follows is looked at. Leaves come in the order of their names.
    """
    goes_on = last is not None and data.startswith(good)
    try:
        entries = parse_tree(data[len(good) :] if goes_on else data)
    except CorruptError as fault:
        return fault.message
    odd = next((entry for entry in entries if entry.mode not in _MODES), None)
    if odd is not None:
        return f"the tree entry {shown(odd.name)} has the mode {shown(odd.mode)}."
    ordered = [last, *entries] if goes_on and last is not None else entries
    if any(_key(first) >= _key(second) for first, second in pairwise(ordered)):
        return "a tree's entries are not in git's order."
    names = {entry.name for entry in entries}
    if len(names) != len(entries) or (goes_on and any(b" " + name + b"\0" in good for name in names)):
        return "a tree has two entries of one name."
    return ""


def last_entry(data: bytes, good: bytes, last: Entry | None) -> Entry:
    """The last entry of a tree without fault; `good` and `last` as in `tree_fault`."""
    goes_on = last is not None and data.startswith(good)
    entries = parse_tree(data[len(good) :] if goes_on else data)
    if entries:
        return entries[-1]
    assert last is not None
    return last


def _key(entry: Entry) -> bytes:
    return entry.name + b"/" if entry.mode == TREE_MODE else entry.name


def commit_fault(data: bytes) -> str:
    """What is wrong with a commit's bytes; empty where nothing is."""
    try:
        commit = Commit.parse(data)
    except CorruptError as fault:
        return fault.message
    if b"\0" in data:
        return "a commit holds a NUL character."
    names = [header.partition(b" ")[0] for header in commit.headers]
    if names[:2] != [b"author", b"committer"] or names.count(b"author") + names.count(b"committer") != 2:
        return "a commit does not name one author and one committer."
    odd = next((name for name in names if name not in _HEADERS), None)
    return "" if odd is None else f"a commit has the unknown header {shown(odd)}."
