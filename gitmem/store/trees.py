"""Trees compared, and looked into by path."""

from __future__ import annotations

from collections.abc import Iterator

from gitmem.store.objects import EMPTY_TREE, TREE_MODE, Entry, Oid, Read, parse_tree

_SHORT = 18
_GITLINK = b"160000"
Change = tuple[Entry | None, Entry | None]
"""A file before and after; None where it is not there."""


def differences(old: Oid, new: Oid, read: Read, prefix: bytes = b"") -> dict[bytes, Change]:
    """Files that differ between two trees, as they are in each, modes included."""
    if old == new:
        return {}
    before, after = _only(_data(old, read), _data(new, read))
    found: dict[bytes, Change] = {}
    for name in sorted(before.keys() | after.keys()):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        path = prefix + name
        if is_tree(one) or is_tree(other):
            found |= differences(subtree(one), subtree(other), read, path + b"/")
        files = (None if is_tree(one) else one, None if is_tree(other) else other)
        if files != (None, None):
            found[path] = files
    return found


def changed_blobs(old: Oid, new: Oid, read: Read) -> Iterator[tuple[str, tuple[Oid | None, Oid | None]]]:
    """Files whose bytes differ between two trees: path, and the blob before and after."""
    for path, (one, other) in differences(old, new, read).items():
        blobs = _blob(one), _blob(other)
        if blobs[0] != blobs[1]:
            yield path.decode("utf-8", "surrogateescape"), blobs


def find_file(tree: Oid, path: bytes, read: Read) -> Entry | None:
    """A file of a tree, by its path."""
    *folders, name = path.split(b"/")
    for folder in folders:
        tree = subtree(_entry(_data(tree, read), folder))
    found = _entry(_data(tree, read), name)
    return None if is_tree(found) else found


def find_blob(tree: Oid, path: str, read: Read) -> Oid | None:
    """The blob of a file of a tree, by its path."""
    return _blob(find_file(tree, path.encode("utf-8", "surrogateescape"), read))


def is_tree(entry: Entry | None) -> bool:
    """Whether an entry is a folder."""
    return entry is not None and entry.mode == TREE_MODE


def subtree(entry: Entry | None) -> Oid:
    """The tree of an entry; the empty tree where it is no folder."""
    return entry.oid if entry is not None and entry.mode == TREE_MODE else EMPTY_TREE


def _only(old: bytes, new: bytes) -> tuple[dict[bytes, Entry], dict[bytes, Entry]]:
    """The entries of two trees, those of a common beginning left out where that is easily seen."""
    if old and new.startswith(old):
        old, new = b"", new[len(old) :]
    return {e.name: e for e in parse_tree(old)}, {e.name: e for e in parse_tree(new)}


def _data(tree: Oid, read: Read) -> bytes:
    return b"" if tree == EMPTY_TREE else read(tree)[1]


def _blob(entry: Entry | None) -> Oid | None:
    return None if entry is None or entry.mode in (TREE_MODE, _GITLINK) else entry.oid


def _entry(data: bytes, name: bytes) -> Entry | None:
    # A long name between space and NUL cannot lie inside an id; a short one is looked up with care.
    if len(name) >= _SHORT and b" " + name + b"\0" not in data:
        return None
    if len(name) >= _SHORT:
        at = data.index(b" " + name + b"\0")
        mode = data[max(at - 6, 0) : at]
        if mode.startswith(b"100"):
            start = at + len(name) + 2
            return Entry(mode, name, data[start : start + 20])
    return next((entry for entry in parse_tree(data) if entry.name == name), None)
