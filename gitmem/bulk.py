"""Many commits at once, as fast as git's own fast-import.

Commits are built in memory and written into one pack, each tree as a delta of the one before.
Nothing is visible before the pack is on disk and the branch has moved; a kill loses the batch
and nothing else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

from gitmem.errors import ConflictError
from gitmem.store import epochpack
from gitmem.store import objects as git
from gitmem.store.objects import EMPTY_TREE, TREE_MODE, Entry, Oid, Person, Read
from gitmem.store.pack import PackWriter
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


class _Branch:
    """An epoch in memory, while commits are added to it."""

    def __init__(
        self, repository: Repository, writer: PackWriter, base: Oid | None, root: Callable[[], bytes]
    ) -> None:
        self.base = base
        self._writer = writer
        self._folders: dict[str, _Folder] = {}
        self._others: dict[bytes, Entry] = {}
        if base is None:
            writer.add("tree", b"")
            self.tip = writer.add("commit", root())
        else:
            self.tip = base
            self._load(repository.read, repository.commit_at(base).tree)

    def _load(self, read: Read, tree: Oid) -> None:
        for entry in git.parse_tree(read(tree)[1]) if tree != EMPTY_TREE else []:
            if entry.mode == TREE_MODE and entry.name in (b"raw", b"hldp"):
                self._folders[entry.name.decode()] = _Folder(read(entry.oid)[1])
            elif entry.mode == TREE_MODE and entry.name == b"meta":
                for inner in git.parse_tree(read(entry.oid)[1]):
                    self._folders[f"meta/{inner.name.decode()}"] = _Folder(read(inner.oid)[1])
            else:
                self._others[entry.name] = entry

    def commit(
        self, changes: Mapping[str, bytes | None], message: str, author: Person, committer: Person
    ) -> Oid:
        for path, data in changes.items():
            folder, _, name = path.rpartition("/")
            oid = None if data is None else self._writer.add("blob", data)
            if folder not in self._folders:
                self._folders[folder] = _Folder(b"")
            self._folders[folder].set(name.encode(), oid)
        tree = self._root({path.rpartition("/")[0] for path in changes})
        self.tip = self._writer.add("commit", git.make_commit(tree, [self.tip], author, committer, message))
        return self.tip

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


class Bulk:
    """A batch of commits on some epochs. Use under the repository's lock.

    Epochs that the batch begins stand whole in its pack, which then needs no further packing.
    """

    def __init__(self, repository: Repository, root: Callable[[str], bytes]) -> None:
        """`root` gives the root commit of an epoch that is new."""
        self._repository = repository
        self._root = root
        self._writer = PackWriter(f"{repository.objects}/pack")
        self._branches: dict[str, _Branch] = {}
        self.commits = 0
        """Commits in this batch so far."""

    @property
    def is_full(self) -> bool:
        """Whether it is time to finish this batch, even in the middle of an epoch."""
        return self.commits >= MAX_COMMITS or self._writer.size >= MAX_BYTES

    @property
    def is_enough(self) -> bool:
        """Whether the next epoch should go into another pack."""
        return self.commits >= epochpack.MAX_COMMITS or self._writer.size >= epochpack.MAX_BYTES

    def begin(self, epoch: str) -> None:
        """Let the epoch be part of the batch, also if no commit follows."""
        if epoch not in self._branches:
            twin = next((name for name in self._branches if name.lower() == epoch.lower()), None)
            if twin is not None:
                raise ConflictError(f"epoch {epoch} differs from {twin} only in case.", hint=f"Use {twin}.")
            base = self._repository.refs.head(epoch)
            self._branches[epoch] = _Branch(self._repository, self._writer, base, lambda: self._root(epoch))

    def commit(
        self, epoch: str, changes: Mapping[str, bytes | None], message: str, author: Person, committer: Person
    ) -> Oid:
        """Add a commit that sets files (`KIND/NAME`, `meta/KIND/STEM.yaml`) or removes them."""
        self.begin(epoch)
        self.commits += 1
        return self._branches[epoch].commit(changes, message, author, committer)

    def finish(self) -> None:
        """Store the batch and move its branches.

        Raises:
            ConflictError: a push moved one of them meanwhile, which is then left as it is.
        """
        moved = {name: branch for name, branch in self._branches.items() if branch.tip != branch.base}
        if not moved:
            self.abandon()
            return
        whole = all(branch.base is None for branch in moved.values())
        keep = epochpack.keep_note({name: branch.tip for name, branch in moved.items()}) if whole else None
        with self._repository.strays() as note:
            self._writer.finish(note, keep)
            for name, branch in moved.items():
                try:
                    self._repository.refs.update(HEADS + name, branch.tip, branch.base)
                except StaleRefError:
                    raise ConflictError(
                        f"a push to {name} was faster.", hint="Run the import again."
                    ) from None

    def abandon(self) -> None:
        """Throw the batch away."""
        self._writer.abandon()
