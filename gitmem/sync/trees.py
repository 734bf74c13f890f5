"""Trees compared and looked into by path."""

from __future__ import annotations

from collections.abc import Iterator

from gitmem.store.objects import EMPTY_TREE, TREE_MODE, Entry, Oid, Read, parse_tree

_SHORT = 18
_GITLINK = b"160000"
Change = tuple[Oid | None, Oid | None]


def changes(old: Oid, new: Oid, read: Read, where: bytes = b"") -> Iterator[tuple[str, Change]]:
    """Files in which two trees differ: path, and the blob before and after (None: no such file)."""
    if old == new:
        return
    before, after = _only(_data(old, read), _data(new, read))
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        path = where + name
        if _is_tree(was) or _is_tree(now):
            yield from changes(_tree(was), _tree(now), read, path + b"/")
        blobs = _blob(was), _blob(now)
        if blobs[0] != blobs[1]:
            yield path.decode("utf-8", "surrogateescape"), blobs


def _only(old: bytes, new: bytes) -> tuple[dict[bytes, Entry], dict[bytes, Entry]]:
    """The entries of two trees, those of a common beginning left out where that is easily seen."""
    if old and new.startswith(old):
        old, new = b"", new[len(old) :]
    return {e.name: e for e in parse_tree(old)}, {e.name: e for e in parse_tree(new)}


def _data(tree: Oid, read: Read) -> bytes:
    return b"" if tree == EMPTY_TREE else read(tree)[1]


def _is_tree(entry: Entry | None) -> bool:
    return entry is not None and entry.mode == TREE_MODE


def _tree(entry: Entry | None) -> Oid:
    return entry.oid if entry is not None and entry.mode == TREE_MODE else EMPTY_TREE


def _blob(entry: Entry | None) -> Oid | None:
    return None if entry is None or entry.mode in (TREE_MODE, _GITLINK) else entry.oid


def find(tree: Oid, path: str, read: Read) -> Oid | None:
    """The blob at a path, or None."""
    *folders, name = path.encode("utf-8", "surrogateescape").split(b"/")
    for folder in folders:
        entry = _entry(_data(tree, read), folder)
        if not _is_tree(entry):
            return None
        tree = _tree(entry)
    return _blob(_entry(_data(tree, read), name))


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
