"""Git objects as bytes: trees and commits read and written, and a stage that holds new ones.

Everything here is a function of bytes. Object ids are 20 raw bytes (`Oid`).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from gitmem.errors import CorruptError
from gitmem.times import offset_minutes, seconds

Oid = bytes
ObjectType = Literal["commit", "tree", "blob", "tag"]
Read = Callable[[Oid], tuple[ObjectType, bytes]]

EMPTY_TREE: Oid = bytes.fromhex("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
BLOB_MODE = b"100644"
TREE_MODE = b"40000"

_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)


class Entry(NamedTuple):
    """One entry of a tree."""

    mode: bytes
    name: bytes
    oid: Oid


def hash_object(kind: ObjectType, data: bytes) -> Oid:
    """The id git gives to these bytes."""
    return hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).digest()


def parse_tree(data: bytes) -> list[Entry]:
    """The entries of a tree, in git's order.

    Raises:
        CorruptError: the bytes are not a tree.
    """
    entries = [Entry(*found) for found in _ENTRY.findall(data)]
    if sum(len(mode) + len(name) + 22 for mode, name, _ in entries) != len(data):
        raise CorruptError("a tree object is damaged.", hint="Run git fsck in the repository.")
    return entries


def format_tree(entries: Iterable[Entry]) -> bytes:
    """The bytes of a tree; entries in any order."""
    ordered = sorted(entries, key=lambda e: e.name + b"/" if e.mode == TREE_MODE else e.name)
    return b"".join(b"%s %s\0%s" % entry for entry in ordered)


def set_files(data: bytes, files: Mapping[bytes, Oid | None]) -> bytes:
    """The bytes of a tree of files, some set to blobs, or removed where None. It has no folders."""
    entries = _ENTRY.findall(data)
    keys = [name for _, name, _ in entries]
    for name, oid in sorted(files.items(), reverse=True):
        at = bisect_left(keys, name)
        start = len(data) if at == len(entries) else sum(len(m) + len(n) + 22 for m, n, _ in entries[:at])
        present = at < len(entries) and keys[at] == name
        end = start + (len(entries[at][0]) + len(name) + 22 if present else 0)
        data = data[:start] + (b"" if oid is None else b"%s %s\0%s" % (BLOB_MODE, name, oid)) + data[end:]
        if not present and oid is not None:
            entries.insert(at, (BLOB_MODE, name, oid))
            keys.insert(at, name)
    return data


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, with every header kept in its place."""

    tree: Oid
    parents: tuple[Oid, ...]
    headers: tuple[bytes, ...]
    """The other headers (author, committer, …) as they stand, folded lines joined by newlines."""
    message: bytes

    @classmethod
    def parse(cls, data: bytes) -> Commit:
        """Read a commit's bytes.

        Raises:
            CorruptError: the bytes are not a commit.
        """
        head, _, message = data.partition(b"\n\n")
        lines: list[bytes] = []
        for line in head.split(b"\n"):
            if line[:1] == b" " and lines:
                lines[-1] += b"\n" + line
            else:
                lines.append(line)
        try:
            tree = bytes.fromhex(lines[0].removeprefix(b"tree ").decode("ascii"))
            parents = tuple(bytes.fromhex(x[7:].decode("ascii")) for x in lines if x.startswith(b"parent "))
        except ValueError:
            raise CorruptError(
                "a commit object is damaged.", hint="Run git fsck in the repository."
            ) from None
        return cls(tree, parents, tuple(x for x in lines[1:] if not x.startswith(b"parent ")), message)

    def format(self) -> bytes:
        """The bytes of the commit."""
        parents = [b"parent " + parent.hex().encode() for parent in self.parents]
        head = b"\n".join([b"tree " + self.tree.hex().encode(), *parents, *self.headers])
        return head + b"\n\n" + self.message

    def _person(self, field: bytes) -> tuple[str, int]:
        for header in self.headers:
            if header.startswith(field + b" "):
                name, _, rest = header[len(field) + 1 :].partition(b" <")
                numbers = rest.rpartition(b"> ")[2].split()
                try:
                    return name.decode("utf-8", "replace"), int(numbers[0])
                except (IndexError, ValueError):
                    return name.decode("utf-8", "replace"), 0
        return "", 0

    @property
    def author(self) -> tuple[str, int]:
        """Name of the author, and when, in seconds since 1970 UTC."""
        return self._person(b"author")

    @property
    def committer(self) -> tuple[str, int]:
        """Name of the committer, and when, in seconds since 1970 UTC."""
        return self._person(b"committer")

    @property
    def subject(self) -> str:
        """The first line of the message."""
        return self.message.partition(b"\n")[0].decode("utf-8", "replace")


class Person(NamedTuple):
    """Who, and when, for a commit's author or committer line."""

    name: str
    email: str
    when: datetime

    def header(self, field: str) -> bytes:
        """The header line. Git knows no time before 1970: such a time is written as 1970."""
        name = re.sub(r"[\x00-\x1f\x7f<>]", "", self.name).strip(" .,:;\"'") or "gitmem"
        minutes = offset_minutes(self.when)
        sign = "-" if minutes < 0 else "+"
        zone = f"{sign}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"
        return f"{field} {name} <{self.email}> {max(0, seconds(self.when))} {zone}".encode("utf-8", "replace")


def make_commit(tree: Oid, parents: Iterable[Oid], author: Person, committer: Person, message: str) -> bytes:
    """The bytes of a new commit."""
    headers = (author.header("author"), committer.header("committer"))
    return Commit(tree, tuple(parents), headers, message.encode("utf-8")).format()


class Stage:
    """New objects in memory, over a store that is only read. Nothing is written until asked."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.new: dict[Oid, tuple[ObjectType, bytes]] = {}
        """Objects put here, in the order in which they came."""

    def read(self, oid: Oid) -> tuple[ObjectType, bytes]:
        """An object, new or stored."""
        if oid in self.new:
            return self.new[oid]
        return ("tree", b"") if oid == EMPTY_TREE else self._read(oid)

    def data(self, oid: Oid) -> bytes:
        """An object's bytes."""
        return self.read(oid)[1]

    def put(self, kind: ObjectType, data: bytes) -> Oid:
        """Hold an object; its id."""
        oid = hash_object(kind, data)
        self.new.setdefault(oid, (kind, data))
        return oid

    def edit(self, tree: Oid, changes: Mapping[str, Oid | None]) -> Oid:
        """The tree with files set to blobs, or removed where None. Emptied folders vanish."""
        return self._edit(
            tree,
            {
                tuple(path.encode("utf-8", "surrogateescape").split(b"/")): oid
                for path, oid in changes.items()
            },
        ) or self.put("tree", b"")

    def _edit(self, tree: Oid, changes: Mapping[tuple[bytes, ...], Oid | None]) -> Oid | None:
        if all(len(path) == 1 for path in changes) and b"40000 " not in (before := self.data(tree)):
            data = set_files(before, {path[0]: oid for path, oid in changes.items()})
            return self.put("tree", data) if data else None
        entries = {entry.name: entry for entry in parse_tree(self.data(tree))}
        below: dict[bytes, dict[tuple[bytes, ...], Oid | None]] = {}
        for path, oid in changes.items():
            if len(path) > 1:
                below.setdefault(path[0], {})[path[1:]] = oid
            elif oid is None:
                entries.pop(path[0], None)
            else:
                entries[path[0]] = Entry(BLOB_MODE, path[0], oid)
        for name, inner in below.items():
            old = entries.pop(name, None)
            base = old.oid if old and old.mode == TREE_MODE else EMPTY_TREE
            subtree = self._edit(base, inner)
            if subtree is not None:
                entries[name] = Entry(TREE_MODE, name, subtree)
        return self.put("tree", format_tree(entries.values())) if entries else None


class Item(NamedTuple):
    """An object met on a walk through history."""

    oid: Oid
    kind: ObjectType
    data: bytes | None
    """Its bytes; None for a blob, which is not read."""
    path: bytes
    """Where its tree or blob was first met; empty for commits and root trees."""


def items(tips: Iterable[Oid], read: Read, seen: set[Oid] | None = None) -> Iterator[Item]:
    """Every object that commits `tips` lead to, each once, in the order of history.

    `seen` holds ids already known together with all they lead to: they are skipped, and every id
    met is added to it.
    """
    known: set[Oid] = set() if seen is None else seen
    last: dict[bytes, bytes] = {}

    def tree_items(oid: Oid, path: bytes) -> Iterator[Item]:
        known.add(oid)
        data = read(oid)[1]
        yield Item(oid, "tree", data, path)
        for mode, name, child in _entries_after(last.get(path), data):
            if child in known or mode == b"160000":
                continue
            if mode == TREE_MODE:
                yield from tree_items(child, path + name + b"/")
            else:
                known.add(child)
                yield Item(child, "blob", None, path + name)
        last[path] = data

    for oid, commit in history(tips, read, known):
        known.add(oid)
        yield Item(oid, "commit", read(oid)[1], b"")
        if commit.tree not in known:
            yield from tree_items(commit.tree, b"")


def _entries_after(old: bytes | None, new: bytes) -> list[Entry]:
    """Entries of the tree `new` without those it surely shares with the tree `old`.

    Leaves come in the order of their names, so most trees are the one before and one entry more.
    """
    if old and new.startswith(old):
        return parse_tree(new[len(old) :])
    return parse_tree(new)


def reachable(tips: Iterable[Oid], read: Read, seen: set[Oid] | None = None) -> set[Oid]:
    """Ids of every object that commits `tips` lead to; `seen` as in `items`, and part of the answer."""
    found: set[Oid] = set() if seen is None else seen
    for _ in items(tips, read, found):
        pass
    return found


def history(tips: Iterable[Oid], read: Read, stop: Container[Oid] = ()) -> list[tuple[Oid, Commit]]:
    """Every commit that `tips` lead to, parents before children, without `stop` and what is below."""
    ordered: list[tuple[Oid, Commit]] = []
    known: dict[Oid, Commit] = {}
    done: set[Oid] = set()
    waiting = list(tips)
    while waiting:
        oid = waiting[-1]
        if oid in done or oid in stop:
            waiting.pop()
            continue
        commit = known.get(oid)
        if commit is None:
            commit = known[oid] = Commit.parse(read(oid)[1])
            waiting.extend(parent for parent in commit.parents if parent not in done)
            continue
        waiting.pop()
        done.add(oid)
        ordered.append((oid, known.pop(oid)))
    return ordered


def tag_target(data: bytes) -> Oid:
    """The object an annotated tag points at."""
    return bytes.fromhex(data[7:47].decode("ascii"))


def commits_of(oid: Oid, read: Read) -> set[Oid]:
    """Ids of the commits that a ref's target leads to; none for a blob or a tree."""
    kind, data = read(oid)
    while kind == "tag":
        oid = tag_target(data)
        kind, data = read(oid)
    return {found for found, _ in history([oid], read)} if kind == "commit" else set()


def reachable_from(refs: Iterable[Oid], read: Read, seen: set[Oid]) -> None:
    """Add to `seen` everything that targets of refs lead to: tags, commits, trees and blobs."""
    for target in refs:
        if target in seen:
            continue
        oid = target
        kind, data = read(oid)
        while kind == "tag":
            seen.add(oid)
            oid = tag_target(data)
            kind, data = read(oid)
        if kind == "commit":
            reachable([oid], read, seen)
        elif kind == "blob":
            seen.add(oid)
        elif oid not in seen:
            seen.add(oid)
            for entry in parse_tree(data):
                reachable_from([entry.oid], read, seen)
