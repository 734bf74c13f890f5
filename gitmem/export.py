"""Export: personas as plain files, in the layout that `gitmem init --from` reads.

Released leaves are never exported; their tombstones are, so that nothing brings them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gitmem import host, layout, times
from gitmem import manifest as manifests
from gitmem import sidecar as sidecars
from gitmem.errors import GitmemError, UnavailableError
from gitmem.home import Home
from gitmem.leaves import Standing, archived_at, archived_blob, look, ratio, said_at
from gitmem.memory import Memory
from gitmem.places import wiki_folder
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store import objects as git
from gitmem.store.repository import MAIN, Repository, View
from gitmem.tracepath import KINDS, LeafName, check_kind, is_name

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    folder: str
    personas: int
    leaves: int
    released: int
    """Tombstones: leaves that exist no more."""
    skipped: tuple[str, ...] = ()
    """Files in the branches that are no leaves by their names, and were left out."""


def export(home: Home, folder: str | Path, progress: Progress | None = None) -> Exported:
    """Write every persona of a home to a new or empty folder.

    Raises:
        ConflictError: the folder holds something already.
        CorruptError: a leaf cannot be read; nothing is left behind.
    """
    target = Path(folder).absolute()
    host.check_free(target)
    draft = host.draft_folder(target)
    memories = [home.persona(name) for name in home.personas()]
    total = sum(e.texts + e.records for memory in memories for e in memory.epochs())
    leaves = released = 0
    try:
        # Noted before anything is written: should this be killed, a release names what it left.
        for memory in memories:
            home.local.add_export(memory.key, str(draft), times.iso(memory.now()))
        host.make_private_folder(draft)
        for memory in memories:
            for stored in _persona_files(memory, draft):
                leaves += stored is not State.RELEASED
                released += stored is State.RELEASED
                if progress:
                    progress(leaves, total)
        for memory in memories:
            home.local.add_export(memory.key, str(target), times.iso(memory.now()))
        host.move_folder(draft, target)
        for memory in memories:
            home.local.drop_export(memory.key, str(draft))
    except GitmemError:
        raise
    except OSError as fault:
        raise UnavailableError(f"{target} cannot be written: {fault}.") from fault
    finally:
        if draft.exists():
            host.remove_tree(draft)
    skipped = tuple(f"{memory.name}/{path}" for memory in memories for path in _odd_files(memory.repository))
    return Exported(str(target), len(memories), leaves, released, skipped)


def _persona_files(memory: Memory, folder: Path) -> Iterator[State]:
    """Write one persona; yields the state of each leaf as it is written."""
    place = folder / memory.name
    repository = memory.repository
    manifest = repository.file(MAIN, manifests.FILE_NAME)
    assert manifest is not None
    layout.write_file(place / manifests.FILE_NAME, manifest)
    for epoch in repository.epochs():
        view = repository.view(epoch)
        assert view is not None
        (place / epoch).mkdir(parents=True)
        for leaf in _leaves(repository, view):
            yield _leaf_files(memory, view, leaf, place / epoch)
    _write_pages(Path(repository.folder), place)


def _leaves(repository: Repository, view: View) -> list[LeafName]:
    """Every leaf of an epoch; files that plain git let in under other names are none."""
    found: set[LeafName] = set()
    for kind in KINDS:
        found |= {LeafName(kind, name) for name in view.names(kind)} | view.sidecar_ids(kind).keys()
    removed = (path.partition("/") for path in repository.removals_of(view.tip))
    found |= {LeafName(check_kind(kind), name) for kind, _, name in removed}
    return sorted(leaf for leaf in found if is_name(leaf.kind, leaf.name))


def _odd_files(repository: Repository) -> list[str]:
    views = {epoch: repository.view(epoch) for epoch in repository.epochs()}
    names = [
        (epoch, kind, name)
        for epoch, view in views.items()
        if view
        for kind in KINDS
        for name in view.names(kind)
    ]
    return [f"{epoch}/{kind}/{name}" for epoch, kind, name in names if not is_name(kind, name)]


def _leaf_files(memory: Memory, view: View, leaf: LeafName, place: Path) -> State:
    repository = memory.repository
    standing = look(repository, view, leaf)
    oid = view.sidecar_id(leaf)
    sidecar = repository.blob(oid) if oid is not None else None
    if standing.state is None:  # a sidecar that speaks of nothing
        return State.RELEASED
    if standing.removed_by is not None:
        sidecar = _sidecar_of_removed(memory, standing, leaf)
    if sidecar is not None:
        layout.write_file(place / leaf.sidecar, sidecar)
    if standing.shown is not None and standing.state is not State.RELEASED:
        layout.write_file(place / leaf.path, repository.blob(standing.shown))
    forgotten = standing.sidecar is not None and standing.sidecar.forgotten
    if standing.state is State.ARCHIVED or (standing.state is State.WITHERED and not forgotten):
        data = repository.blob(archived_blob(repository, leaf, standing))
        layout.write_file(place / layout.HISTORY / leaf.path, data)
    return standing.state


def _sidecar_of_removed(memory: Memory, standing: Standing, leaf: LeafName) -> bytes | None:
    """What gitmem would have written, had it archived a leaf that plain git removed."""
    oid = archived_blob(memory.repository, leaf, standing)
    data = memory.repository.blob(oid)
    old = standing.sidecar or Sidecar()
    return sidecars.dump(
        replace(
            old,
            state=State.ARCHIVED,
            ts=said_at(leaf, old, data, memory.zone),
            blob=oid.hex(),
            archived_at=archived_at(memory.repository, standing, memory.zone),
            compression_ratio=ratio(data),
        )
    )


def _write_pages(repository: Path, place: Path) -> None:
    folder = wiki_folder(repository)
    if not folder.is_dir():
        return
    wiki = Repository(str(folder))
    try:
        tip = wiki.refs.head(MAIN)
        if tip is None:
            return
        for name, oid in _tree_files(wiki, wiki.commit_at(tip).tree):
            layout.write_file(place / layout.PAGES / name, wiki.blob(oid))
    finally:
        wiki.close()


def _tree_files(repository: Repository, tree: git.Oid, prefix: str = "") -> list[tuple[str, git.Oid]]:
    """Path and blob of every file below a tree."""
    found: list[tuple[str, git.Oid]] = []
    for entry in git.parse_tree(repository.read(tree)[1]) if tree != git.EMPTY_TREE else []:
        name = prefix + entry.name.decode("utf-8", "surrogateescape")
        if entry.mode == git.TREE_MODE:
            found += _tree_files(repository, entry.oid, name + "/")
        elif entry.mode in (b"100644", b"100755"):
            found.append((name, entry.oid))
    return found
