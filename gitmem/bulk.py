"""Many commits to one epoch at once, as fast as git's own fast-import.

Commits are built in memory and written into one pack, each tree as a delta of the one before.
Nothing is visible before the pack is on disk and the branch has moved; a kill loses the batch
and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from gitmem.errors import ConflictError
from gitmem.store import objects as git
from gitmem.store.epochpack import keep_note
from gitmem.store.objects import EMPTY_TREE, TREE_MODE, Entry, Oid, Person, Read
from gitmem.store.pack import PackWriter, remove_pack
from gitmem.store.refs import HEADS, StaleRefError
from gitmem.store.repository import Repository

MAX_COMMITS = 20_000
MAX_BYTES = 64 * 1024 * 1024


class _Folder:
    """A folder of files that changes a file at a time; knows its bytes before and after."""

    def __init__(self, data: bytes) -> None:
        entries = git.parse_tree(data)
        self._names = [entry.name for entry in entries]
        self._chunks = [b"%s %s\0%s" % entry for entry in entries]
        self.oid: Oid = git.hash_object("tree", data)
        self.data = data

    def set(self, name: bytes, oid: Oid | None) -> None:
        """Set a file to a blob, or remove it."""
        at = bisect_left(self._names, name)
        present = at < len(self._names) and self._names[at] == name
        if oid is None:
            if present:
                del self._names[at], self._chunks[at]
            return
        chunk = b"%s %s\0%s" % (git.BLOB_MODE, name, oid)
        if present:
            self._chunks[at] = chunk
        else:
            self._names.insert(at, name)
            self._chunks.insert(at, chunk)

    def write(self, writer: PackWriter) -> Oid:
        """Put the folder's tree into the pack."""
        before = (self.oid, self.data)
        self.data = b"".join(self._chunks)
        self.oid = writer.add("tree", self.data, base=before)
        return self.oid


class Bulk:
    """A batch of commits on one epoch. Use under the repository's lock."""

    def __init__(self, repository: Repository, epoch: str) -> None:
        self._repository = repository
        self._epoch = epoch
        tip = repository.refs.head(epoch)
        if tip is None:
            raise ConflictError(f"there is no epoch {epoch} to write to.")
        self._base = tip
        root = repository.commit_at(tip)
        # An epoch that is still its empty root can be written whole, into a closed pack.
        self._whole = root.tree == EMPTY_TREE and not root.parents
        self._folders: dict[str, _Folder] = {}
        self._others: dict[bytes, Entry] = {}
        self._load(repository.read, root.tree)
        self._tip = tip
        self._writer = PackWriter(f"{repository.objects}/pack")
        if self._whole:
            self._writer.add("tree", b"")
            self._writer.add("commit", repository.read(tip)[1])
        self.commits = 0
        """Commits in this batch so far."""

    def _load(self, read: Read, tree: Oid) -> None:
        for entry in git.parse_tree(read(tree)[1]) if tree != EMPTY_TREE else []:
            if entry.mode == TREE_MODE and entry.name in (b"raw", b"hldp"):
                self._folders[entry.name.decode()] = _Folder(read(entry.oid)[1])
            elif entry.mode == TREE_MODE and entry.name == b"meta":
                for inner in git.parse_tree(read(entry.oid)[1]):
                    self._folders[f"meta/{inner.name.decode()}"] = _Folder(read(inner.oid)[1])
            else:
                self._others[entry.name] = entry

    @property
    def is_full(self) -> bool:
        """Whether it is time to finish this batch and begin another."""
        return self.commits >= MAX_COMMITS or self._writer.size >= MAX_BYTES

    def commit(
        self, changes: Mapping[str, bytes | None], message: str, author: Person, committer: Person
    ) -> Oid:
        """Add a commit that sets files (`KIND/NAME`, `meta/KIND/STEM.yaml`) or removes them."""
        for path, data in changes.items():
            folder, _, name = path.rpartition("/")
            oid = None if data is None else self._writer.add("blob", data)
            if folder not in self._folders:
                self._folders[folder] = _Folder(b"")
            self._folders[folder].set(name.encode(), oid)
        tree = self._root({path.rpartition("/")[0] for path in changes})
        data = git.make_commit(tree, [self._tip], author, committer, message)
        self._tip = self._writer.add("commit", data)
        self.commits += 1
        return self._tip

    def _root(self, changed: set[str]) -> Oid:
        for name in changed:
            self._folders[name].write(self._writer)
        top = dict(self._others)
        meta: list[Entry] = []
        for name, folder in self._folders.items():
            if not folder.data:
                continue
            if name.startswith("meta/"):
                meta.append(Entry(TREE_MODE, name[5:].encode(), folder.oid))
            else:
                top[name.encode()] = Entry(TREE_MODE, name.encode(), folder.oid)
        if meta:
            top[b"meta"] = Entry(TREE_MODE, b"meta", self._writer.add("tree", git.format_tree(meta)))
        return self._writer.add("tree", git.format_tree(top.values()))

    def finish(self) -> Oid:
        """Store the batch and move the branch; its new tip.

        Raises:
            ConflictError: a push moved the branch meanwhile; nothing was changed.
        """
        if not self.commits:
            self.abandon()
            return self._base
        keep = keep_note({self._epoch: self._tip}) if self._whole else None
        with self._repository.strays() as note:
            base = self._writer.finish(keep, lambda name: note(name.encode()))
            try:
                self._repository.refs.update(HEADS + self._epoch, self._tip, self._base)
            except StaleRefError:
                remove_pack(base)
                raise ConflictError(
                    f"a push to {self._epoch} was faster.", hint="Run the import again."
                ) from None
        return self._tip

    def abandon(self) -> None:
        """Throw the batch away."""
        self._writer.abandon()
