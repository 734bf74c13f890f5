"""The memory of one persona: write, read, archive, wither and release leaves.

This is the object every front works with. One persona's memory never reads or names another's.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from gitmem import checks, leaves, times
from gitmem import manifest as manifests
from gitmem.catalog import Catalog, Row
from gitmem.checks import check_keep
from gitmem.errors import ConflictError, NotFoundError, RefusedError, UnavailableError, UsageError
from gitmem.leaves import MODES, Mode, Retrieval, archived_blob, look
from gitmem.lists import Epoch, HistoryEntry, Page, TimelineEntry, leaf_history, timeline_entry
from gitmem.local import LocalState
from gitmem.manifest import Manifest
from gitmem.places import other_places
from gitmem.policy.rules import Limits
from gitmem.report import Place, Released, ReleaseReport
from gitmem.settings import Settings
from gitmem.states import State, check_move
from gitmem.store import erase
from gitmem.store.objects import EMPTY_TREE, Oid, Person, make_commit
from gitmem.store.repository import MAIN, Repository, retry_stale
from gitmem.tracepath import (
    LeafName,
    TracePath,
    check_epoch,
    natural_order,
    parse_hnl,
)
from gitmem.transaction import USER, Leaf, Transaction, Turn, When

T = TypeVar("T")
Clock = Callable[[], datetime]
FIRST_EPOCH = "D1"
_MEMO_MAX = 65536


class Memory:
    """One persona's memory. Get one from `Home.persona`."""

    def __init__(
        self,
        repository: Repository,
        *,
        catalog: Catalog,
        local: LocalState,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self.repository = repository
        self.catalog = catalog
        self._local = local
        self._clock = clock
        self._settings = settings
        self.limits = Limits(max_bytes=settings.max_leaf_bytes, secrets=settings.secrets)
        """What the receive policy allows the library's own writes."""
        self._manifest_memo: tuple[Oid, Manifest] | None = None
        self.name = self.manifest.name
        self.key = self.name.key
        self.zone = times.zone(self.manifest.timezone)
        """The persona's time zone, fixed when the persona was made."""
        self._own_memo: dict[str, TracePath] = {}
        repository.on_lock.append(lambda: erase.resume(repository))
        if erase.pending(repository):
            # Go on with a purge that was killed; one that is under way elsewhere holds the lock.
            with contextlib.suppress(UnavailableError), repository.locked(0):
                pass

    # -- who and when ------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest:
        """What the persona's repository says about itself, as of now.

        Raises:
            CorruptError: `main` has no readable manifest.
        """
        tip = self.repository.refs.head(MAIN)
        if self._manifest_memo is None or self._manifest_memo[0] != tip:
            data = self.repository.file(MAIN, manifests.FILE_NAME)
            if tip is None or data is None:
                raise NotFoundError(f"{self.repository.folder} holds no persona: main has no gitmem.yaml.")
            self._manifest_memo = tip, manifests.parse(data, f"gitmem.yaml in {self.repository.folder}")
        return self._manifest_memo[1]

    def now(self) -> datetime:
        """The present time in the persona's zone, to the second."""
        return times.parse(self._clock(), self.zone, "clock")

    def person(self, role: str | None, when: datetime) -> Person:
        """Who spoke: the human for the role `user`, else the persona."""
        said_by = self.manifest
        who, what = (said_by.human or "human", "human") if role == USER else (said_by.persona, "persona")
        return Person(who, f"{what}@{self.key.replace('/', '.')}.invalid", when)

    def gitmem_person(self, when: datetime) -> Person:
        """gitmem itself, as the committer."""
        return Person("gitmem", "gitmem@localhost.invalid", when)

    # -- paths -------------------------------------------------------------------------------

    def own(self, path: str) -> TracePath:
        """Read a path of this persona, in its true case.

        Raises:
            UsageError: it is malformed.
            RefusedError: it belongs to another persona; whether it exists is not told.
        """
        known = self._own_memo.get(path)
        if known is not None:
            return known
        found = parse_hnl(path)
        readings = found.paths if found else (TracePath.parse(path),)
        for reading in readings:
            if reading.persona_name.key == self.key:
                if len(self._own_memo) > _MEMO_MAX:
                    self._own_memo.clear()
                return self._own_memo.setdefault(path, self.path(reading.epoch, reading.leaf))
        message = (
            f"{readings[0]} is not a path of {self.name}; a memory reads and changes its own leaves only."
        )
        raise RefusedError(message)

    def path(self, epoch: str, leaf: LeafName) -> TracePath:
        """The trace path of a leaf of this persona."""
        return TracePath.of(self.name, epoch, leaf.kind, leaf.name)

    # -- epochs ------------------------------------------------------------------------------

    def epochs(self) -> list[Epoch]:
        """All epochs in natural order (D99 before D118)."""
        self.refresh()
        counts = self.catalog.count(self.key)
        heads = {name: tip for name, tip in self.repository.refs.heads().items() if name != MAIN}
        current = self._current_epoch(heads)
        found = []
        for name in sorted(heads, key=natural_order):
            epoch = Epoch(name)
            epoch.commit = heads[name].hex()
            epoch.current = name == current
            epoch.texts = counts.get(name, {}).get("raw", 0)
            epoch.records = counts.get(name, {}).get("hldp", 0)
            found.append(epoch)
        return found

    def _current_epoch(self, heads: Iterable[str]) -> str:
        named = self.manifest.epoch
        if named is not None:
            return named
        return max((h for h in heads if h != MAIN), key=natural_order, default=FIRST_EPOCH)

    def start_epoch(self, name: str) -> str:
        """Let new leaves go to the epoch `name`, made if it is new; its name."""
        check_epoch(name)
        with self.repository.locked():
            self.ensure_epoch(name)
            retry_stale(lambda: self._set_manifest(replace(self.manifest, epoch=name), f"epoch {name}"))
        return name

    def choose_epoch(self, name: str | None) -> str:
        """The epoch to write to: the one named, or the current one. It may still have to be made.

        Raises:
            ConflictError: an epoch of that name in other case exists.
        """
        if name is not None and self.repository.refs.head(name) is not None:
            return name
        heads = self.repository.refs.heads()
        name = name or self._current_epoch(heads)
        twin = next((head for head in heads if head.lower() == name.lower()), None)
        if twin is not None and twin != name:
            raise ConflictError(f"epoch {name} differs from {twin} only in case.", hint=f"Use {twin}.")
        return name

    def ensure_epoch(self, name: str) -> Oid:
        """The tip of an epoch, which is made if it is new. Call under the repository's lock."""
        tip = self.repository.refs.head(self.choose_epoch(name))
        if tip is not None:
            return tip
        who = self.gitmem_person(self.now())
        return self.repository.commit(
            name, {}, self._root_subject(name), base=None, author=who, committer=who
        )

    def root_commit(self, name: str) -> bytes:
        """The root commit of a new epoch: empty, and naming it."""
        who = self.gitmem_person(self.now())
        return make_commit(EMPTY_TREE, (), who, who, self._root_subject(name))

    def _root_subject(self, name: str) -> str:
        return f"epoch {self.name}/{name}\n"

    def pin_epoch(self) -> None:
        """Let the current epoch stay what it is, whatever epochs an import adds. Call under the lock."""
        if self.manifest.epoch is None:
            current = self._current_epoch(self.repository.refs.heads())
            retry_stale(lambda: self._set_manifest(replace(self.manifest, epoch=current), f"epoch {current}"))

    def _set_manifest(self, manifest: Manifest, subject: str) -> None:
        if manifest == self.manifest:
            return
        who = self.gitmem_person(self.now())
        base = self.repository.refs.head(MAIN)
        changes = {manifests.FILE_NAME: manifests.dump(manifest)}
        self.repository.commit(MAIN, changes, subject + "\n", base=base, author=who, committer=who)

    # -- writing -----------------------------------------------------------------------------

    def transaction(self, epoch: str | None = None) -> Transaction:
        """Many changes of one epoch in one commit: `with memory.transaction("D118") as tx:`."""
        return Transaction(self, epoch)

    def _change(self, epoch: str | None, work: Callable[[Transaction], T], *, locked: bool = False) -> T:
        with Transaction(self, epoch, locked=locked) as tx:
            return work(tx)

    def write(
        self,
        text: str | bytes,
        *,
        epoch: str | None = None,
        at: When | None = None,
        label: str | None = None,
        tags: Iterable[str] = (),
        role: str | None = None,
        turn_id: str | None = None,
        summary: str | None = None,
    ) -> Leaf:
        """Write a text as a leaf. It is durable when this returns.

        Args:
            text: Stored exactly as given, as UTF-8.
            epoch: Where to; else the current epoch.
            at: When it was said; a time without offset is in the persona's zone. Else now.
            label: Follows the second in the leaf's name.
            turn_id: With `role`, unique in the persona: the same turn again changes nothing and
                returns the first leaf, even after its release.

        Raises:
            UsageError: malformed epoch, time, label, or text (empty, too long, NUL, not UTF-8).
            RefusedError: the turn was written before with another text.
        """
        return self._change(
            epoch,
            lambda tx: tx.write(
                text, at=at, label=label, tags=tags, role=role, turn_id=turn_id, summary=summary
            ),
        )

    def write_turn(
        self,
        turn_id: str,
        *,
        user: str | bytes,
        companion: str | bytes,
        at: When | None = None,
        epoch: str | None = None,
    ) -> Turn:
        """Write the two leaves of a finished conversation turn in one commit.

        Idempotent: the same turn again changes nothing and returns the first leaves.
        """
        return self._change(epoch, lambda tx: tx.write_turn(turn_id, user=user, companion=companion, at=at))

    def record(
        self,
        value: Any,
        *,
        tags: Iterable[str] = (),
        human_visible: bool = False,
        epoch: str | None = None,
        at: When | None = None,
        id: str | None = None,  # noqa: A002 - the record's own word
        told: bool | None = None,
        context: Any = None,
    ) -> Leaf:
        """Write a record: any JSON value, or a Markdown or HLDP string.

        Raises:
            UsageError: the value is not JSON.
            ConflictError: a record of that `id` exists.
            RefusedError: one of that `id` was released.
        """
        return self._change(
            epoch,
            lambda tx: tx.record(
                value, tags=tags, human_visible=human_visible, at=at, id=id, told=told, context=context
            ),
        )

    def check_text(self, text: str | bytes) -> bytes:
        """The bytes of a text that may be a leaf; see `checks.check_text`."""
        return checks.check_text(text, self._settings.max_leaf_bytes)

    def new_record_id(self) -> str:
        """A record id that nobody has."""
        return f"mem_{secrets.token_hex(8)}"

    # -- reading -----------------------------------------------------------------------------

    def trace(self, path: str, mode: Mode = "auto", epoch: str | None = None) -> Retrieval:
        """Read a leaf by its trace path (or HNL string).

        Not found, released and the other mode's leaves are answers, not errors. `epoch` narrows
        the search: a leaf of another epoch is then not found.

        Raises:
            UsageError: malformed path, mode or epoch.
            RefusedError: the path belongs to another persona.
            CorruptError: what is stored cannot be read.
        """
        target = self.own(path)
        if mode not in MODES:
            raise UsageError(f"mode {mode!r} is not one of: {', '.join(MODES)}.")
        if epoch is not None and check_epoch(epoch) != target.epoch:
            return leaves.not_found(target)
        return self.repository.steady(lambda: self._retrieve(target, mode))

    def _retrieve(self, target: TracePath, mode: Mode) -> Retrieval:
        view = self.repository.view(target.epoch)
        if view is None:
            return leaves.not_found(target)
        return leaves.retrieve(self.repository, view, target, mode, self.zone)

    def trace_many(self, paths: Iterable[str]) -> list[Retrieval]:
        """`trace` for each path, in order."""
        return [self.trace(path) for path in paths]

    def remember(self, path: str, restore: bool = False) -> Retrieval:
        """Read any living leaf, an archived one in full from history.

        With `restore` it becomes active again with its full text.

        Raises:
            RefusedError: `restore` of a released leaf, or of one whose original was forgotten.
        """
        target = self.own(path)
        if restore and self.trace(target).status != "not_found":
            self._change(target.epoch, lambda tx: tx.restore(target))
        return self.trace(target)

    def history(self, path: str) -> list[HistoryEntry]:
        """Commits that touched a leaf, newest first; none for a leaf that never was."""
        target = self.own(path)
        return self.repository.steady(lambda: self._commits_of(target))

    def _commits_of(self, target: TracePath) -> list[HistoryEntry]:
        view = self.repository.view(target.epoch)
        return leaf_history(self.repository, view.tip, target.leaf, self.zone) if view else []

    def timeline(
        self,
        since: When | None = None,
        until: When | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Page[TimelineEntry]:
        """Active, withered and archived leaves, newest first.

        Args:
            since: From this time on.
            until: Before this time; a bare date means that the whole day belongs to it.
            limit: Entries on a page, 1 to 1000.
            before: `next` of the page before.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 1000:
            raise UsageError(f"limit must be a whole number from 1 to 1000, not {limit!r}.")
        zone = self.zone
        start = None if since is None else times.seconds(times.parse(since, zone, "since"))
        end = None if until is None else times.seconds(times.parse_until(until, zone, "until"))
        self.refresh()
        rows = self.catalog.timeline(self.key, start, end, before, limit + 1)
        entries = [self._entry(row) for row in rows[:limit]]
        return Page(entries, rows[limit - 1].cursor if len(rows) > limit else None)

    def _entry(self, row: Row) -> TimelineEntry:
        return self.repository.steady(lambda: timeline_entry(self.repository, self.name, row, self.zone))

    # -- states ------------------------------------------------------------------------------

    def _by_epoch(self, paths: Iterable[str]) -> dict[str, list[TracePath]]:
        groups: dict[str, list[TracePath]] = {}
        for path in dict.fromkeys(self.own(path) for path in paths):
            groups.setdefault(path.epoch, []).append(path)
        return groups

    def _check_all(self, groups: dict[str, list[TracePath]], new: State) -> None:
        """Refuse a change of many leaves before the first is made, if one of them may not change."""
        for epoch, paths in groups.items():
            view = self.repository.view(epoch)
            for path in paths:
                lenient = new is State.RELEASED
                state = look(self.repository, view, path.leaf, lenient=lenient).state if view else None
                if state is None:
                    raise NotFoundError(f"{path} does not exist; nothing was changed.")
                if new is not State.RELEASED or state is not State.RELEASED:
                    check_move(path, state, new)

    def archive(self, *paths: str) -> list[Leaf]:
        """Archive leaves: their text leaves the branch and stays in history. All or none.

        Raises:
            NotFoundError: one of them does not exist.
            RefusedError: one of them may not be archived.
        """
        groups = self._by_epoch(paths)
        with self.repository.locked():
            self._check_all(groups, State.ARCHIVED)
            for epoch, mine in groups.items():
                self._each(epoch, mine, Transaction.archive)
        return [self._as_leaf(path) for mine in groups.values() for path in mine]

    def _each(self, epoch: str, paths: list[TracePath], verb: Callable[[Transaction, str], None]) -> None:
        """One commit in which `verb` is done to each path. Call under the lock."""

        def work(tx: Transaction) -> None:
            for path in paths:
                verb(tx, path)

        self._change(epoch, work, locked=True)

    def wither(self, path: str, keep: float = 0.4, forget_original: bool = False) -> Leaf:
        """Blur a raw leaf. History keeps the sharp text, unless `forget_original` purges it too.

        The leaf's `report` then says where the original was purged, as that of a release does.

        Raises:
            NotFoundError: it does not exist.
            RefusedError: it is a record, or may not wither.
        """
        check_keep(keep)
        target = self.own(path)
        self._check_exists(target)
        with self.repository.locked():
            texts = self._full_texts([target]) if forget_original else []
            self._change(
                target.epoch,
                lambda tx: tx.wither(target, keep, forget_original=forget_original),
                locked=True,
            )
            report = self._purge({target.epoch: [target]}, texts) if forget_original else None
        leaf = self._as_leaf(target)
        leaf.report = report
        return leaf

    def set_visible(self, path: str, visible: bool) -> Leaf:
        """Say whether humans may see a record. Its bytes stay; the sidecar overrides them."""
        return self._amend(path, "show" if visible else "hide", human_visible=bool(visible))

    def mark_told(self, path: str) -> Leaf:
        """Note that the persona has told its human about a record."""
        return self._amend(path, "tell", told_at=times.iso(self.now()))

    def _amend(self, path: str, verb: str, **fields: Any) -> Leaf:
        target = self.own(path)
        if target.kind != "hldp":
            raise RefusedError(f"{target} is raw text; only records are shown to humans.")
        self._check_exists(target)
        self._change(target.epoch, lambda tx: tx.amend(verb, target, **fields))
        return self._as_leaf(target)

    def _check_exists(self, target: TracePath) -> None:
        view = self.repository.view(target.epoch)
        if view is None or look(self.repository, view, target.leaf).state is None:
            raise NotFoundError(f"{target} does not exist.")

    def _as_leaf(self, target: TracePath) -> Leaf:
        """An existing leaf, as the verbs that changed it return it."""
        view = self.repository.view(target.epoch)
        assert view is not None
        standing = look(self.repository, view, target.leaf)
        blob = standing.shown.hex() if standing.shown else None
        if standing.state is State.ARCHIVED:
            blob = archived_blob(self.repository, target.leaf, standing).hex()
        answer = None if standing.state is State.RELEASED else self.trace(target).ts
        return Leaf(target, view.tip.hex(), blob, answer, created=False)

    # -- release -----------------------------------------------------------------------------

    def release(self, *paths: str, dry_run: bool = False) -> ReleaseReport:
        """Release leaves: purge their text from every place this home knows. All or none.

        A tombstone stands in their place; their names never return. Releasing a released leaf
        again finishes what was cut short. Many leaves cost one rewrite for each epoch.

        Raises:
            NotFoundError: one of them does not exist.
        """
        groups = self._by_epoch(paths)
        if dry_run:
            self._check_all(groups, State.RELEASED)
            return self._preview(groups)
        with self.repository.locked():
            self._check_all(groups, State.RELEASED)
            texts = self._full_texts(path for mine in groups.values() for path in mine)
            for epoch, mine in groups.items():
                self._each(epoch, mine, Transaction.release)
            return self._purge(groups, texts)

    def _status(self, path: TracePath) -> str:
        """How a leaf stands, whether or not its text can be read."""
        view = self.repository.view(path.epoch)
        state = look(self.repository, view, path.leaf, lenient=True).state if view else None
        return state.status if state else "not_found"

    def _full_texts(self, paths: Iterable[TracePath]) -> list[bytes]:
        """What leaves said, as far as it can be read: to look for it in places that only quote."""
        found = []
        for path in paths:
            view = self.repository.view(path.epoch)
            standing = look(self.repository, view, path.leaf, lenient=True) if view else None
            if standing is None or standing.state in (None, State.RELEASED):
                continue
            oid = standing.shown
            if oid is None or (standing.sidecar and standing.sidecar.full_text):
                oid = archived_blob(self.repository, path.leaf, standing)
            found.append(self.repository.blob(oid))
        return found

    def _purge(self, groups: dict[str, list[TracePath]], texts: list[bytes]) -> ReleaseReport:
        """Purge the epochs of leaves whose sidecars call for it. Call under the lock."""
        outcomes = [erase.purge_epoch(self.repository, epoch) for epoch in groups]
        self.refresh()
        results = []
        for path in (path for mine in groups.values() for path in mine):
            tip = self.repository.refs.head(path.epoch)
            results.append(Released(path, self._status(path), tip.hex() if tip else None))
        places = [place for outcome in outcomes for place in outcome.places]
        return ReleaseReport(
            tuple(results),
            (*places, *self._other_places(groups, texts)),
            objects=sum(outcome.deleted for outcome in outcomes),
            notes=tuple(note for outcome in outcomes for note in outcome.notes),
        )

    def _preview(self, groups: dict[str, list[TracePath]]) -> ReleaseReport:
        leaves_of = {epoch: [path.leaf for path in mine] for epoch, mine in groups.items()}
        count = sum(erase.preview(self.repository, epoch, mine) for epoch, mine in leaves_of.items())
        paths = [path for mine in groups.values() for path in mine]
        results = tuple(Released(path, self._status(path), None) for path in paths)
        places = tuple(self._other_places(groups, self._full_texts(paths)))
        return ReleaseReport(results, places, dry_run=True, objects=count)

    def _other_places(self, groups: dict[str, list[TracePath]], texts: list[bytes]) -> list[Place]:
        """Places outside the repository."""
        paths = [path for mine in groups.values() for path in mine]
        return other_places(self.repository, self._local, self.key, paths, texts)

    # -- what transactions ask ---------------------------------------------------------------

    def refresh(self) -> None:
        """Let the catalog catch up with the branches."""
        self.repository.steady(lambda: self.catalog.refresh(self.key, self.repository, self.zone))

    def advance(self, epoch: str, base: Oid, touched: Iterable[LeafName]) -> None:
        """Let the catalog follow an own commit."""
        self.catalog.advance(self.key, self.repository, self.zone, epoch, base, touched)

    def catalog_rows_of(self, second: str) -> list[Row]:
        """Leaves of any epoch said in that second, tombstones included."""
        return self.catalog.same_second(self.key, second)

    def check_free(self, epoch: str, leaf: LeafName) -> None:
        """Raise if a leaf of that name is in the epoch, or a tombstone of it stands in any."""
        row = self.catalog.released(self.key, leaf)
        if row is not None:
            raise RefusedError(f"{self.path(row.epoch, leaf)} was released; its name never returns.")
        if self.catalog.find(self.key, epoch, leaf) is not None:
            raise ConflictError(f"{self.path(epoch, leaf)} exists already.", hint="Choose another id.")

    def find_turn(self, turn_id: str, role: str | None) -> Leaf | None:
        """The leaf that a turn and role were written to, tombstones included."""
        row = self.catalog.turn(self.key, turn_id, role)
        if row is None:
            return None
        view = self.repository.view(row.epoch)
        assert view is not None
        standing = look(self.repository, view, row.leaf)
        sidecar = standing.sidecar
        full = sidecar.blob if sidecar and sidecar.state in (State.WITHERED, State.ARCHIVED) else None
        if standing.state is State.ACTIVE and standing.shown:
            full = standing.shown.hex()
        ts = None if standing.state is State.RELEASED else times.iso(times.from_seconds(row.at, self.zone))
        return Leaf(self.path(row.epoch, row.leaf), view.tip.hex(), full, ts, created=False)
