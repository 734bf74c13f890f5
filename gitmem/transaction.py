"""Many changes of one epoch in one commit.

The persona's repository is locked from the beginning of the block to its end. Nothing is stored
before the end; an exception in the block changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from gitmem import records, times
from gitmem.checks import check_keep, check_summary, check_word, check_words
from gitmem.errors import ConflictError, RefusedError
from gitmem.leaves import Draft
from gitmem.records import Record
from gitmem.report import ReleaseReport
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store import erase
from gitmem.store.objects import Oid, Person, hash_object
from gitmem.store.refs import StaleRefError
from gitmem.tracepath import (
    LeafName,
    TracePath,
    check_epoch,
    check_label,
    check_record_id,
    last_count,
    make_name,
)

if TYPE_CHECKING:
    from gitmem.memory import Memory

USER = "user"
COMPANION = "companion"
When = str | date | datetime


@dataclass(slots=True)
class Leaf:
    """A leaf that was written, or was there already."""

    trace_path: TracePath
    commit: str | None
    """The commit that holds it; None until the block of a transaction ends."""
    blob: str | None
    """Git id of its bytes; None where the leaf was released since."""
    ts: str | None
    """When it was said, ISO 8601 with offset."""
    created: bool
    """False where the same turn had been written before, and nothing was changed."""
    report: ReleaseReport | None = None
    """Where the original was purged, of a leaf that withered with `forget_original`."""


class Turn(NamedTuple):
    """The two leaves of a finished conversation turn."""

    user: Leaf
    companion: Leaf


class Transaction:
    """Changes to one epoch of one persona. Use it as a context manager."""

    def __init__(self, memory: Memory, epoch: str | None, *, locked: bool = False) -> None:
        """`locked` says that the caller holds the repository's lock already."""
        self._memory = memory
        self._locked = locked
        self._asked_epoch = None if epoch is None else check_epoch(epoch)
        self._stack = ExitStack()
        self._log: list[tuple[Callable[[], Leaf | None], Leaf | None]] = []

    def __enter__(self) -> Self:
        if not self._locked:
            self._stack.enter_context(self._memory.repository.locked())
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self._finish()

    def _begin(self) -> None:
        """Start from the epoch as it is now."""
        memory = self._memory
        self._zone = memory.zone
        self._now = memory.now()
        self.epoch = memory.choose_epoch(self._asked_epoch)
        view = memory.repository.view(self.epoch)
        self._base: Oid | None = view.tip if view else None
        memory.refresh()
        self._home = memory.repository.label
        self._draft = Draft(memory.repository, view, self._zone, times.iso(self._now))
        self._turns: dict[tuple[str, str | None], Leaf] = {}
        self._leaves: list[Leaf] = []
        self._author: Person | None = None

    def _finish(self) -> None:
        while True:
            try:
                self._commit()
            except StaleRefError:
                self._replay()
            else:
                return

    def _commit(self) -> None:
        draft = self._draft
        if not draft.touched:
            return
        memory = self._memory
        self._check_policy()
        base = self._base or memory.ensure_epoch(self.epoch)
        if any(verb == "release" or self._forgets(verb, leaf) for verb, leaf in draft.touched):
            erase.begin(memory.repository, self.epoch)
        commit = memory.repository.commit(
            self.epoch,
            draft.changes,
            message(draft.touched),
            base=base,
            author=self._author or memory.person(None, self._now),
            committer=memory.gitmem_person(self._now),
        )
        for leaf in self._leaves:
            if leaf.created:
                leaf.commit = commit.hex()
        memory.advance(self.epoch, base, {leaf for _, leaf in draft.touched})

    def _check_policy(self) -> None:
        """Raise `RefusedError` if the changes would break a rule that a push must keep."""

        def released(leaf: LeafName) -> str | None:
            row = self._memory.catalog.released(self._memory.key, leaf)
            return row.epoch if row is not None and row.epoch != self.epoch else None

        found = self._draft.violations(self._memory.limits, released)
        broken = [violation for violation in found if not violation.warning]
        if broken:
            more = f" ({len(broken) - 1} more)" if len(broken) > 1 else ""
            message = f"{self.epoch}/{broken[0].path}: {broken[0].rule}: {broken[0].what}{more}"
            raise RefusedError(message, hint=broken[0].remedy)

    def _forgets(self, verb: str, leaf: LeafName) -> bool:
        sidecar = self._draft.standing(leaf).sidecar
        return verb == "wither" and sidecar is not None and sidecar.forgotten

    def _replay(self) -> None:
        """A push was faster: make the same changes on top of it."""
        log, self._log = self._log, []
        self._begin()
        for run, before in log:
            after = self._do(run)
            if before is None or after is None:
                continue
            if before.trace_path != after.trace_path:
                message = f"a push took the name {before.trace_path} while the transaction was open."
                raise ConflictError(message, hint="Nothing was changed; run the transaction again.")
            self._leaves[self._leaves.index(after)] = before
            before.blob, before.created, before.commit = after.blob, after.created, after.commit

    def _do(self, run: Callable[[], Leaf | None]) -> Leaf | None:
        result = run()
        self._log.append((run, result))
        return result

    # -- changes -----------------------------------------------------------------------------

    def write(
        self,
        text: str | bytes,
        *,
        at: When | None = None,
        label: str | None = None,
        tags: Iterable[str] = (),
        role: str | None = None,
        turn_id: str | None = None,
        summary: str | None = None,
    ) -> Leaf:
        """Add a raw leaf; see `Memory.write`."""
        data = self._memory.check_text(text)
        if label is not None:
            check_label(label)
        extra = Sidecar(
            tags=check_words("tag", tags),
            role=check_word("role", role),
            turn_id=check_word("turn_id", turn_id, 200),
            summary=check_summary(summary),
        )
        moment = self._now if at is None else times.parse(at, self._zone, "at")
        leaf = self._do(lambda: self._write(data, moment, label, extra))
        assert leaf is not None
        return leaf

    def write_turn(
        self, turn_id: str, *, user: str | bytes, companion: str | bytes, at: When | None = None
    ) -> Turn:
        """Add the two leaves of a finished turn; see `Memory.write_turn`."""
        for text in (user, companion):
            self._memory.check_text(text)
        at = self._now if at is None else times.parse(at, self._zone, "at")
        said = self.write(user, at=at, role=USER, turn_id=turn_id)
        return Turn(said, self.write(companion, at=at, role=COMPANION, turn_id=turn_id))

    def _write(self, data: bytes, moment: datetime, label: str | None, extra: Sidecar) -> Leaf:
        if extra.turn_id is not None:
            known = self._known_turn(extra.turn_id, extra.role, data)
            if known is not None:
                return known
        second = times.to_name(moment)
        leaf = LeafName("raw", make_name(second, label, last_count(self._taken(second)) + 1, self._home))
        stamp = times.iso(moment)
        sidecar = extra if times.is_plain(moment) else _with_ts(extra, stamp)
        blob = self._draft.add("write", leaf, data, sidecar)
        return self._added(leaf, blob, stamp, extra, moment)

    def _added(self, leaf: LeafName, blob: Oid, stamp: str, extra: Sidecar, moment: datetime) -> Leaf:
        if self._author is None:
            self._author = self._memory.person(extra.role, moment)
        made = Leaf(self._memory.path(self.epoch, leaf), None, blob.hex(), stamp, created=True)
        self._leaves.append(made)
        if extra.turn_id is not None:
            self._turns[extra.turn_id, extra.role] = made
        return made

    def _taken(self, second: str) -> list[str]:
        """Names of that second which no new leaf may have: those here, and tombstones anywhere.

        In a home that syncs, those of all epochs: a name that is released in one epoch before the
        other epoch was pushed would be refused there.
        """
        rows = self._memory.catalog_rows_of(second)
        here = [r.leaf.name for r in rows if self._home or r.epoch == self.epoch or r.state is State.RELEASED]
        return here + [leaf.name for _, leaf in self._draft.touched if leaf.name.startswith(second)]

    def _known_turn(self, turn_id: str, role: str | None, data: bytes) -> Leaf | None:
        """The leaf of that turn where it was written before.

        Raises:
            RefusedError: it holds another text.
        """
        if (turn_id, role) in self._turns:
            made = self._turns[turn_id, role]
            self._check_same(made.blob, data, turn_id, role, made.trace_path)
            return made
        found = self._memory.find_turn(turn_id, role)
        if found is None:
            return None
        self._check_same(found.blob, data, turn_id, role, found.trace_path)
        return found

    def _check_same(self, blob: str | None, data: bytes, turn_id: str, role: str | None, path: str) -> None:
        if blob is not None and blob != hash_object("blob", data).hex():
            who = f" of {role}" if role else ""
            message = f"turn {turn_id!r}{who} was written before, with another text: {path}."
            raise RefusedError(message, hint="A finished turn never changes; use a new turn_id.")

    def record(
        self,
        value: Any,
        *,
        tags: Iterable[str] = (),
        human_visible: bool = False,
        at: When | None = None,
        id: str | None = None,  # noqa: A002 - the record's own word
        told: bool | None = None,
        context: Any = None,
    ) -> Leaf:
        """Add a record; see `Memory.record`."""
        moment = self._now if at is None else times.parse(at, self._zone, "at")
        draft = Record(
            id=check_record_id(id) if id is not None else self._memory.new_record_id(),
            persona=self._memory.name,
            timestamp=times.iso(moment),
            hldp=value,
            tags=check_words("tag", tags),
            human_visible=human_visible,
            told=told,
            context=context,
        )
        data = self._memory.check_text(records.dump(draft))
        leaf = self._do(lambda: self._record(draft, data, moment))
        assert leaf is not None
        return leaf

    def _record(self, draft: Record, data: bytes, moment: datetime) -> Leaf:
        leaf = LeafName("hldp", draft.id + ".json")
        self._memory.check_free(self.epoch, leaf)
        blob = self._draft.add("record", leaf, data, Sidecar())
        return self._added(leaf, blob, times.iso(moment), Sidecar(), moment)

    def archive(self, path: str) -> None:
        """Archive a leaf of this epoch."""
        self._on(path, self._draft_method("archive"))

    def wither(self, path: str, keep: float = 0.4, *, forget_original: bool = False) -> None:
        """Wither a leaf of this epoch. `Memory.wither` also purges a forgotten original."""
        share = check_keep(keep)
        self._on(path, lambda leaf: self._draft.wither(leaf, share, forget=forget_original))

    def restore(self, path: str) -> None:
        """Make a leaf of this epoch active again."""
        self._on(path, self._draft_method("restore"))

    def release(self, path: str) -> None:
        """Put a tombstone in place of a leaf. `Memory.release` also purges its history."""
        self._on(path, self._draft_method("release"))

    def amend(self, verb: str, path: str, **fields: Any) -> None:
        """Set fields of a leaf's sidecar."""
        self._on(path, lambda leaf: self._draft.amend(verb, leaf, **fields))

    def _draft_method(self, name: str) -> Callable[[LeafName], None]:
        # Looked up when run, not when logged: a replay has a new draft.
        def change(leaf: LeafName) -> None:
            getattr(self._draft, name)(leaf)

        return change

    def _on(self, path: str, change: Callable[[LeafName], None]) -> None:
        target = self._memory.own(path)
        if target.epoch != self.epoch:
            message = f"{target} belongs to epoch {target.epoch}; this transaction changes {self.epoch} only."
            raise RefusedError(message)
        self._do(lambda: change(target.leaf))


def _with_ts(sidecar: Sidecar, stamp: str) -> Sidecar:
    return Sidecar(
        ts=stamp, tags=sidecar.tags, role=sidecar.role, turn_id=sidecar.turn_id, summary=sidecar.summary
    )


def message(touched: list[tuple[str, LeafName]]) -> str:
    """The commit message: what was done to which leaf, never a word of its text."""
    leaves = list(dict.fromkeys(touched))
    verb, first = leaves[0]
    more = f" and {len(leaves) - 1} more" if len(leaves) > 1 else ""
    trailers = "".join(f"Leaf: {leaf.path}\n" for leaf in dict.fromkeys(leaf for _, leaf in leaves))
    return f"{verb} {first.path}{more}\n\n{trailers}"
