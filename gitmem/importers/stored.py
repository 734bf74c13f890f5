"""The sample and export layout becomes repositories again: same blobs, times, states, sidecars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gitmem import host, layout, times
from gitmem.bulk import Bulk
from gitmem.home import Home
from gitmem.importers.entries import Progress
from gitmem.importers.report import ImportReport
from gitmem.layout import StoredLeaf, StoredPersona
from gitmem.leaves import said_at
from gitmem.memory import Memory
from gitmem.places import wiki_folder
from gitmem.settings import Settings
from gitmem.states import State
from gitmem.store.purge import MESSAGE
from gitmem.store.repository import MAIN, Repository
from gitmem.tracepath import TracePath, leaf_order
from gitmem.transaction import message


def init_from(
    target: Path,
    source: Path,
    *,
    clock: object = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Make a home from plain files: all of it, or nothing.

    Raises:
        ConflictError: the target holds a home or other files already.
        UsageError: a file of the source breaks a rule.
    """
    folder = target.absolute()
    host.check_free(folder)
    settings = settings or Settings()
    personas = layout.read(source, settings.max_leaf_bytes)
    draft = host.draft_folder(folder)
    report = ImportReport()
    try:
        with Home.init(draft, clock=clock, settings=settings) as home:  # type: ignore[arg-type]
            take_all(home, personas, report, progress)
        host.move_folder(draft, folder)
    finally:
        if draft.exists():
            host.remove_tree(draft)
    return report


def take_all(
    home: Home, personas: list[StoredPersona], report: ImportReport, progress: Progress | None = None
) -> ImportReport:
    """Add personas read from files to a home; leaves that are there already are left alone."""
    total = sum(len(leaves) for persona in personas for leaves in persona.epochs.values())
    done = 0
    here = {name.lower() for name in home.personas()}
    for stored in personas:
        if stored.manifest.name.key not in here:
            home.check_free(stored.manifest)
    for stored in personas:
        if stored.manifest.name.key in here:
            memory = home.persona(stored.manifest.name)
            with memory.repository.locked():
                memory.pin_epoch()
        else:
            memory = home.create(stored.manifest)
        report.personas.add(memory.name)
        for epoch, leaves in stored.epochs.items():
            _take_epoch(memory, epoch, leaves, report, old=stored.manifest.name.key in here)
            report.epochs.add(epoch)
            done += len(leaves)
            if progress:
                progress(done, total)
        if stored.pages:
            _take_pages(memory, stored.pages)
        memory.refresh()
    return report


@dataclass(frozen=True, slots=True)
class _Step:
    """One commit of a leaf's life."""

    when: datetime
    rank: int
    order: tuple[str, int, str]
    verb: str
    stored: StoredLeaf
    changes: dict[str, bytes | None]


def _take_epoch(
    memory: Memory, epoch: str, leaves: list[StoredLeaf], report: ImportReport, *, old: bool
) -> None:
    """Write the leaves of an epoch; `old` says that the persona was there before."""
    with memory.repository.locked():
        memory.choose_epoch(epoch)  # no twin that differs in case
        memory.refresh()
        fresh = [stored for stored in leaves if _is_new(memory, epoch, stored, report, old=old)]
        bulk = Bulk(memory.repository, memory.root_commit)
        try:
            bulk.begin(epoch)
            steps = (step for stored in fresh for step in _steps(memory, stored))
            for step in sorted(steps, key=lambda step: (step.rank, step.when, step.order)):
                _commit(memory, bulk, epoch, step)
            bulk.finish()
        except BaseException:
            bulk.abandon()
            raise
        report.taken += len(fresh)


def _commit(memory: Memory, bulk: Bulk, epoch: str, step: _Step) -> None:
    role = step.stored.parsed.role if step.verb in ("write", "record") else None
    # What a purge touches has its message from the start, so that a purge finds nothing to do.
    purged = step.verb == "release" or step.stored.parsed.forgotten
    subject = MESSAGE.decode() if purged else message([(step.verb, step.stored.leaf)])
    author = memory.person(role, step.when)
    bulk.commit(epoch, step.changes, subject, author, memory.gitmem_person(memory.now()))


def _is_new(memory: Memory, epoch: str, stored: StoredLeaf, report: ImportReport, *, old: bool) -> bool:
    """Whether the leaf is to be written; where not, the report says why."""
    path = memory.path(epoch, stored.leaf)
    # In a persona that is made from these files, leaves of one name in two epochs are as they were there.
    if old and memory.catalog.released(memory.key, stored.leaf):
        report.released.append(path)
        return False
    answer = memory.trace(path)
    if answer.status != "not_found":
        _note_present(memory, path, stored, report)
        return False
    turn = memory.find_turn(stored.parsed.turn_id, stored.parsed.role) if stored.parsed.turn_id else None
    if turn is None:
        return True
    if turn.ts is None:
        report.released.append(path)
    else:
        report.left_out.append((path, f"the same turn stands in {turn.trace_path}."))
    return False


def _note_present(memory: Memory, path: TracePath, stored: StoredLeaf, report: ImportReport) -> None:
    """Note a leaf whose path is taken."""
    view = memory.repository.view(path.epoch)
    oid = view.leaf(path.leaf) if view else None
    there = memory.repository.blob(oid) if oid is not None else None
    if stored.state is State.RELEASED:
        report.left_out.append(
            (path, "it was released in what is imported, and lives here; gitmem release purges it.")
        )
    elif there == stored.shown:
        report.present += 1
    else:
        report.left_out.append((path, f"it exists already, {memory.trace(path).status}, with another text."))


def _steps(memory: Memory, stored: StoredLeaf) -> Iterator[_Step]:
    """A leaf is written with its full text first, and only then archived, withered or released."""
    leaf, parsed, zone = stored.leaf, stored.parsed, memory.zone
    text = stored.full if stored.full is not None else stored.shown
    said = said_at(leaf, parsed, text, zone)
    when = times.parse(said, zone) if said else memory.now()
    order = leaf_order(leaf.name) if leaf.kind == "raw" else (times.to_name(when), 1, leaf.name)
    verb = "write" if leaf.kind == "raw" else "record"
    if stored.state is State.ACTIVE or (parsed.forgotten and stored.state is State.WITHERED):
        changes = {leaf.path: stored.shown} | (
            {leaf.sidecar: stored.sidecar} if stored.sidecar is not None else {}
        )
        yield _Step(when, 0, order, verb, stored, changes)
        return
    if stored.state is not State.RELEASED:
        yield _Step(when, 0, order, verb, stored, {leaf.path: text})
    later = parsed.archived_at or parsed.withered_at or parsed.released_at
    verbs = {State.ARCHIVED: "archive", State.WITHERED: "wither", State.RELEASED: "release"}
    moment = times.parse(later, zone) if later else when
    yield _Step(
        moment, 1, order, verbs[stored.state], stored, {leaf.path: stored.shown, leaf.sidecar: stored.sidecar}
    )


def _take_pages(memory: Memory, pages: dict[str, bytes]) -> None:
    """Put pages into the persona's wiki, where it has none yet."""
    folder = wiki_folder(Path(memory.repository.folder))
    if folder.exists():
        return
    draft = folder.with_name(f".new-{folder.name}")
    if draft.exists():
        host.remove_tree(draft)
    wiki = Repository.create(str(draft))
    who = memory.gitmem_person(memory.now())
    wiki.commit(MAIN, dict(pages), f"pages of {memory.name}\n", base=None, author=who, committer=who)
    wiki.close()
    draft.rename(folder)
