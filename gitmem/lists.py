"""What the lists of a memory hold: epochs, entries of the timeline, commits of a leaf's history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Generic, TypeVar

from gitmem import records, times
from gitmem.catalog import Row
from gitmem.errors import CorruptError
from gitmem.leaves import Standing, archived_blob, look
from gitmem.records import Record
from gitmem.states import State
from gitmem.store.objects import Oid, history
from gitmem.store.repository import Repository
from gitmem.tracepath import Kind, LeafName, PersonaName, TracePath

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list, and where the next part begins."""

    entries: list[T]
    next: str | None
    """Give it as `before` to get the next page; None at the end."""


class Epoch(str):
    """An epoch's name, with what is known about it."""

    __slots__ = ("commit", "current", "records", "texts")
    commit: str
    """Tip of its branch."""
    current: bool
    """Whether new leaves go to it by default."""
    texts: int
    """Living raw leaves."""
    records: int
    """Living records."""

    @property
    def name(self) -> str:
        return str(self)

    def as_dict(self) -> dict[str, Any]:
        return {
            "epoch": str(self),
            "current": self.current,
            "texts": self.texts,
            "records": self.records,
            "commit": self.commit,
        }


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A leaf in a list by time; its text is read with `trace`."""

    trace_path: TracePath
    status: str
    ts: str | None
    kind: Kind
    role: str | None = None
    turn_id: str | None = None
    tags: tuple[str, ...] = ()
    summary: str | None = None
    human_visible: bool | None = None
    """For records: whether humans may see it."""

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "trace_path": self.trace_path,
            "status": self.status,
            "ts": self.ts,
            "kind": self.kind,
        }
        more = {
            "role": self.role,
            "turn_id": self.turn_id,
            "tags": list(self.tags),
            "summary": self.summary,
            "human_visible": self.human_visible,
        }
        return out | {key: value for key, value in more.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A commit that touched a leaf."""

    commit: str
    subject: str
    author: str
    ts: str
    """When it was committed, ISO 8601 in the persona's zone."""

    def as_dict(self) -> dict[str, str]:
        return {"commit": self.commit, "subject": self.subject, "author": self.author, "ts": self.ts}


def timeline_entry(repository: Repository, persona: PersonaName, row: Row, zone: tzinfo) -> TimelineEntry:
    """The entry of a leaf that the catalog found, as git has it now."""
    view = repository.view(row.epoch)
    standing = look(repository, view, row.leaf, lenient=True) if view else None
    sidecar = standing.sidecar if standing else None
    visible = sidecar.human_visible if sidecar else None
    tags = sidecar.tags if sidecar else ()
    if row.leaf.kind == "hldp" and standing and standing.state not in (None, State.RELEASED):
        record = _record(repository, row.leaf, standing)
        visible = record.human_visible if visible is None else visible
        tags = tags or record.tags
    return TimelineEntry(
        TracePath.of(persona, row.epoch, row.leaf.kind, row.leaf.name),
        (standing.state if standing and standing.state else row.state).status,
        (sidecar.ts if sidecar else None) or times.iso(times.from_seconds(row.at, zone)),
        row.leaf.kind,
        role=sidecar.role if sidecar else None,
        turn_id=sidecar.turn_id if sidecar else None,
        tags=tags,
        summary=sidecar.summary if sidecar else None,
        human_visible=visible,
    )


def _record(repository: Repository, leaf: LeafName, standing: Standing) -> Record:
    """The record of a leaf; an empty one where its bytes are none."""
    data = repository.blob(standing.shown or archived_blob(repository, leaf, standing))
    try:
        return records.parse(data, leaf.path)
    except CorruptError:
        return Record(id=leaf.stem)


def leaf_history(repository: Repository, tip: Oid, leaf: LeafName, zone: tzinfo) -> list[HistoryEntry]:
    """Commits below `tip` in which the leaf or its sidecar differs from every parent, newest first."""
    held: dict[Oid, tuple[Oid | None, Oid | None]] = {}
    found: list[HistoryEntry] = []
    for oid, commit in history([tip], repository.reader()):
        view = repository.view_at(oid)
        held[oid] = view.leaf(leaf), view.sidecar_id(leaf)
        before = [held[parent] for parent in commit.parents] or [(None, None)]
        if held[oid] not in before:
            ts = times.iso(times.from_seconds(commit.committer[1], zone))
            found.append(HistoryEntry(oid.hex(), commit.subject, commit.author[0], ts))
    return found[::-1]
