"""Entries of any format become commits of one epoch each, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from gitmem import sidecar as sidecars
from gitmem import times
from gitmem.bulk import Bulk
from gitmem.errors import GitmemError, UsageError
from gitmem.importers.report import ImportReport
from gitmem.memory import Memory
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store.objects import Person, hash_object
from gitmem.tracepath import LeafName, check_epoch, last_count, make_name
from gitmem.transaction import message

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """Something said, wherever it came from."""

    where: str
    """For a report: the file and line it stands in."""
    data: bytes
    at: datetime
    """In the persona's zone."""
    turn_id: str | None = None
    role: str | None = None
    speaker: str | None = None
    name: str | None = None
    """The name to keep; None lets gitmem choose."""
    epoch: str | None = None
    """The epoch to keep."""
    label: str | None = None


def epoch_for(entry: Entry, by: str) -> str:
    """The epoch an entry goes to: its own, or by `day`, `month`, or the name given."""
    if entry.epoch is not None:
        return entry.epoch
    if by == "day":
        return f"D{entry.at.year:04d}{entry.at:%m%d}"
    if by == "month":
        return f"M{entry.at.year:04d}{entry.at:%m}"
    return check_epoch(by)


def take(
    memory: Memory, entries: Iterable[Entry], by: str, report: ImportReport, progress: Progress | None = None
) -> ImportReport:
    """Write entries as leaves, one commit each, skipping those that are there or were released."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(epoch_for(entry, by), []).append(entry)
    total = sum(map(len, groups.values()))
    done = 0
    waiting = list(groups.items())
    while waiting:
        with memory.repository.locked():
            memory.pin_epoch()
            batch = _Batch(memory, report)
            try:
                while waiting and not batch.bulk.is_enough:
                    for _ in batch.add(*waiting.pop(0)):
                        done += 1
                        if progress:
                            progress(done, total)
                batch.bulk.finish()
                memory.repository.tidy_refs()
            except BaseException:
                batch.bulk.abandon()
                raise
    memory.refresh()
    report.personas.add(memory.name)
    return report


class _Batch:
    """Entries of some epochs, for one pack. Used under the lock."""

    def __init__(self, memory: Memory, report: ImportReport) -> None:
        memory.refresh()
        self._memory = memory
        self._report = report
        self._turns: dict[tuple[str, str | None], str] = {}
        self.bulk = Bulk(memory.repository, memory.root_commit)

    def add(self, epoch: str, entries: list[Entry]) -> Iterator[Entry]:
        """Write the entries of an epoch; yields each once it is dealt with."""
        self._epoch = epoch
        self._begun = False
        self._counts: dict[str, int] = {}
        self._home = self._memory.repository.label
        self._named: dict[LeafName, bytes] = {}
        for entry in entries:
            self._one(entry)
            yield entry
            if self.bulk.is_full:
                self.bulk.finish()
                self._memory.refresh()
                self.bulk = Bulk(self._memory.repository, self._memory.root_commit)

    def _one(self, entry: Entry) -> None:
        try:
            self._memory.check_text(entry.data)
            leaf = self._place(entry)
            if leaf is not None and not self._begun:
                self._memory.choose_epoch(self._epoch)  # no twin that differs in case
                self.bulk.begin(self._epoch)
                self._begun = True
        except GitmemError as fault:
            self._report.left_out.append((entry.where, fault.message))
            return
        if leaf is None:
            return
        ts = None if times.is_plain(entry.at) else times.iso(entry.at)
        sidecar = Sidecar(ts=ts, turn_id=entry.turn_id, role=entry.role)
        changes: dict[str, bytes | None] = {leaf.path: entry.data}
        data = sidecars.dump(sidecar)
        if data is not None:
            changes[leaf.sidecar] = data
        author = self._memory.person(entry.role, entry.at)
        if entry.speaker:
            author = Person(entry.speaker, author.email, entry.at)
        committer = self._memory.gitmem_person(self._memory.now())
        self.bulk.commit(self._epoch, changes, message([("write", leaf)]), author, committer)
        self._report.epochs.add(self._epoch)
        self._report.taken += 1

    def _place(self, entry: Entry) -> LeafName | None:
        """The leaf an entry becomes; None where it is there already or was released (then noted)."""
        if entry.turn_id is not None and self._is_known_turn(entry):
            return None
        if entry.name is not None:
            return self._place_named(entry, LeafName("raw", entry.name))
        second = times.to_name(entry.at)
        if second not in self._counts:
            rows = self._memory.catalog_rows_of(second)
            names = [
                row.leaf.name
                for row in rows
                if self._home or row.epoch == self._epoch or row.state is State.RELEASED
            ]
            self._counts[second] = last_count(names)
        self._counts[second] += 1
        return LeafName("raw", make_name(second, entry.label, self._counts[second], self._home))

    def _is_known_turn(self, entry: Entry) -> bool:
        assert entry.turn_id is not None
        key = (entry.turn_id, entry.role)
        blob = hash_object("blob", entry.data).hex()
        if key in self._turns:
            self._note_known(entry, self._turns[key], blob)
            return True
        found = self._memory.find_turn(*key)
        if found is None:
            self._turns[key] = blob
            return False
        if found.ts is None:
            self._report.released.append(f"{entry.where}: {found.trace_path}")
        else:
            self._note_known(entry, found.blob, blob)
        return True

    def _note_known(self, entry: Entry, there: str | None, blob: str) -> None:
        if there is None or there == blob:
            self._report.present += 1
        else:
            why = f"turn {entry.turn_id!r} was written before, with another text."
            self._report.left_out.append((entry.where, why))

    def _place_named(self, entry: Entry, leaf: LeafName) -> LeafName | None:
        path = self._memory.path(self._epoch, leaf)
        if self._memory.catalog.released(self._memory.key, leaf):
            self._report.released.append(f"{entry.where}: {path}")
            return None
        known = self._named.get(leaf)
        if known is None:
            answer = self._memory.trace(path)
            known = answer.content.encode() if answer.content is not None else None
            if answer.status == "wither":  # the full text may be what comes again
                self._report.present += 1
                return None
        if known is None:
            self._named[leaf] = entry.data
            return leaf
        if known != entry.data:
            raise UsageError(f"{path} exists with another text.")
        self._report.present += 1
        return None
