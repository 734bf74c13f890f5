"""Leaves of one epoch: what they are now, how they are read, and changes to them in memory.

`look` and `retrieve` read; a `Draft` collects changes of one epoch and touches nothing until the
repository commits them.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, Literal, NamedTuple

from gitmem import fade, records, times
from gitmem import sidecar as sidecars
from gitmem.errors import ConflictError, CorruptError, NotFoundError, RefusedError, UsageError
from gitmem.policy.files import check_content
from gitmem.policy.leaves import NOTHING, Held, check_leaf
from gitmem.policy.rules import Limits, Released, Violation
from gitmem.sidecar import Sidecar
from gitmem.states import State, check_move
from gitmem.store.objects import Oid, hash_object
from gitmem.store.repository import Repository, View
from gitmem.tracepath import LeafName, TracePath

Mode = Literal["auto", "active", "archived"]
MODES: tuple[Mode, ...] = ("auto", "active", "archived")


class Retrieval(NamedTuple):
    """The answer of `trace` and `remember`."""

    found: bool
    content: str | None
    """The text, exactly as stored; of a withered leaf, its blur."""
    trace_path: str
    status: str
    """`active`, `wither`, `archived`, `released` or `not_found`."""
    ts: str | None
    """When it was said, ISO 8601 with offset."""
    reason: str | None = None
    """Where not found: `not_found`, `released`, or the status that the asked mode excludes."""
    compressed_summary: str | None = None
    parent_branch: str | None = None
    """The epoch the leaf hangs on, which is its git branch."""
    archived_at: str | None = None
    compression_ratio: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON object: the first five keys always, the others where they apply."""
        pairs = self._asdict()
        return {key: pairs[key] for i, key in enumerate(self._fields) if i < 5 or pairs[key] is not None}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a leaf stands in its epoch."""

    state: State | None
    """None where there never was such a leaf."""
    shown: Oid | None = None
    """The blob in the branch."""
    sidecar: Sidecar | None = None
    removed_by: str | None = None
    """The commit that removed it, where that was done with plain git."""


_NOWHERE = Standing(None)


def look(
    repository: Repository, view: View, leaf: LeafName, *, walk: bool = True, lenient: bool = False
) -> Standing:
    """How the leaf stands in `view`.

    Without `walk` a leaf that plain git removed counts as none, which spares a walk of the epoch.
    With `lenient` a sidecar that cannot be parsed counts as empty.
    """
    shown = view.leaf(leaf)
    sidecar = view.sidecar(leaf, lenient=lenient)
    if sidecar is None and shown is not None:
        return Standing(State.ACTIVE, shown)
    if sidecar is not None and (shown is not None or sidecar.state is not State.ACTIVE):
        return Standing(sidecar.state, shown, sidecar)
    removed_by = repository.removals_of(view.tip).get(leaf.path) if walk else None
    return Standing(State.ARCHIVED, None, sidecar, removed_by) if removed_by else _NOWHERE


def archived_blob(repository: Repository, leaf: LeafName, standing: Standing) -> Oid:
    """Id of the full text of an archived leaf, in history.

    Raises:
        CorruptError: its sidecar does not say, or names nothing.
    """
    if standing.removed_by is not None:
        for parent in repository.commit_at(bytes.fromhex(standing.removed_by)).parents:
            oid = repository.view_at(parent).leaf(leaf)
            if oid is not None:
                return oid
    full = standing.sidecar.full_text if standing.sidecar else None
    if full is None:
        raise CorruptError(
            f"the sidecar of {leaf.path} does not say where its text is.", hint="Run gitmem doctor."
        )
    return bytes.fromhex(full)


def decode(data: bytes, path: str) -> str:
    """The text of a leaf.

    Raises:
        CorruptError: it is not UTF-8 (it was pushed past the hook).
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        message = f"{path} is not UTF-8 text: {fault.reason} at byte {fault.start}."
        raise CorruptError(message, hint="Read its bytes with git show.") from None


def said_at(leaf: LeafName, sidecar: Sidecar | None, data: bytes | None, zone: tzinfo) -> str | None:
    """When a leaf was said, ISO 8601; None for a record that does not tell."""
    if sidecar is not None and sidecar.ts:
        return sidecar.ts
    if leaf.kind == "raw":
        return times.iso_from_name(leaf.name[:15], zone)
    if data is None:
        return None
    try:
        stamp = records.parse(data, leaf.path).timestamp
        return times.iso(times.parse(stamp, zone)) if stamp else None
    except (CorruptError, UsageError):
        return None


def retrieve(repository: Repository, view: View, path: TracePath, mode: Mode, zone: tzinfo) -> Retrieval:
    """Read a leaf: active as it is, withered as its blur, archived in full from history."""
    leaf = path.leaf
    if view.sidecar_id(leaf) is None and (shown := view.leaf(leaf)) is not None and mode != "archived":
        data = view.blob(shown)
        ts = said_at(leaf, None, data, zone)
        return Retrieval(True, decode(data, path), path, "active", ts, parent_branch=path.epoch)
    standing = look(repository, view, leaf)
    if standing.state is None:
        return not_found(path)
    if standing.state is State.RELEASED:
        return Retrieval(False, None, path, "released", None, "released")
    wanted = "archived" if standing.state is State.ARCHIVED else "active"
    status = standing.state.status
    if mode not in ("auto", wanted):
        return Retrieval(False, None, path, status, None, status)
    return _living(repository, path, standing, zone)


def not_found(path: str) -> Retrieval:
    """The answer for a leaf that never was."""
    return Retrieval(False, None, path, "not_found", None, "not_found")


def _living(repository: Repository, path: TracePath, standing: Standing, zone: tzinfo) -> Retrieval:
    leaf, sidecar = path.leaf, standing.sidecar
    assert standing.state is not None
    archived = standing.state is State.ARCHIVED
    if archived:
        data = repository.blob(archived_blob(repository, leaf, standing))
    elif standing.shown is not None:
        data = repository.blob(standing.shown)
    else:
        raise CorruptError(
            f"{path} is {standing.state}, and its text is not in the branch.", hint="Run gitmem doctor."
        )
    return Retrieval(
        True,
        decode(data, path),
        path,
        standing.state.status,
        said_at(leaf, sidecar, data, zone),
        compressed_summary=sidecar.summary if sidecar else None,
        parent_branch=path.epoch,
        archived_at=archived_at(repository, standing, zone) if archived else None,
        compression_ratio=(sidecar and sidecar.compression_ratio) or ratio(data) if archived else None,
    )


def archived_at(repository: Repository, standing: Standing, zone: tzinfo) -> str | None:
    """When a leaf was archived: what its sidecar says, or when plain git removed it."""
    if standing.removed_by is None:
        return standing.sidecar.archived_at if standing.sidecar else None
    when = repository.commit_at(bytes.fromhex(standing.removed_by)).committer[1]
    return times.iso(times.from_seconds(when, zone))


def ratio(data: bytes) -> float:
    """Raw bytes / zlib bytes, to two places."""
    return round(len(data) / len(zlib.compress(data)), 2)


class Draft:
    """Changes to one epoch, checked one by one, in memory."""

    def __init__(self, repository: Repository, view: View | None, zone: tzinfo, now: str) -> None:
        """`view` is None for an epoch that is still to be made."""
        self._repository = repository
        self._view = view
        self._zone = zone
        self._now = now
        self._standings: dict[LeafName, Standing] = {}
        self._new: dict[Oid, bytes] = {}
        self._added: set[LeafName] = set()
        self.changes: dict[str, bytes | None] = {}
        """Files of the branch: bytes, or None where removed."""
        self.touched: list[tuple[str, LeafName]] = []
        """What was done to which leaf, in order."""

    def violations(self, limits: Limits, released: Released) -> list[Violation]:
        """What the receive policy says of the changes: the same rules that a push meets."""
        blobs = {hash_object("blob", data): data for data in self.changes.values() if data is not None}
        ids = {data: oid for oid, data in blobs.items()}

        def read(oid: Oid) -> bytes:
            return blobs[oid] if oid in blobs else self._repository.blob(oid)

        def after(path: str, before: Oid | None) -> Oid | None:
            data = self.changes.get(path)
            return before if path not in self.changes else None if data is None else ids[data]

        found: list[Violation] = []
        for path, data in self.changes.items():
            if data is not None:
                found += check_content(path.encode(), data, limits)
        for leaf in dict.fromkeys(leaf for _, leaf in self.touched):
            view = self._view
            old = Held(view.leaf(leaf), view.sidecar_id(leaf)) if view else NOTHING
            new = Held(after(leaf.path, old.text), after(leaf.sidecar, old.sidecar))
            found += check_leaf(leaf, old, new, read, limits=limits, released=released)
        return found

    def standing(self, leaf: LeafName) -> Standing:
        """How the leaf stands with the changes so far."""
        if leaf not in self._standings:
            self._standings[leaf] = self._look(leaf)
        return self._standings[leaf]

    def _look(self, leaf: LeafName, *, walk: bool = True, lenient: bool = False) -> Standing:
        if self._view is None:
            return _NOWHERE
        return look(self._repository, self._view, leaf, walk=walk, lenient=lenient)

    def existing(self, leaf: LeafName) -> Standing:
        """Like `standing`, for a leaf that must exist.

        Raises:
            NotFoundError: there never was such a leaf.
        """
        standing = self.standing(leaf)
        if standing.state is None:
            raise NotFoundError(f"there is no leaf {leaf.path} in this epoch.")
        return standing

    def _blob(self, oid: Oid) -> bytes:
        return self._new.get(oid) or self._repository.blob(oid)

    def _set(self, verb: str, leaf: LeafName, shown: bytes | None, sidecar: Sidecar) -> Oid | None:
        """Let the leaf show these bytes (None: nothing) and its sidecar say this."""
        before = self._standings.get(leaf, _NOWHERE)
        oid = None if shown is None else hash_object("blob", shown)
        if oid != before.shown:
            self.changes[leaf.path] = shown
            if oid is not None and shown is not None:
                self._new[oid] = shown
        data = sidecars.dump(sidecar)
        if data is not None or before.sidecar is not None:
            self.changes[leaf.sidecar] = data
        self._standings[leaf] = Standing(sidecar.state, oid, sidecar if data else None)
        self.touched.append((verb, leaf))
        return oid

    def add(self, verb: str, leaf: LeafName, data: bytes, sidecar: Sidecar) -> Oid:
        """Add a leaf.

        Raises:
            RefusedError: a leaf of that name was released.
            ConflictError: one exists.
        """
        standing = self._standings.get(leaf) or self._look(leaf, walk=False)
        if standing.state is State.RELEASED:
            raise RefusedError(f"{leaf.path} was released; nothing brings a released leaf back.")
        if standing.state is not None:
            raise ConflictError(
                f"{leaf.path} exists already.", hint="Leave the name to gitmem, or choose another."
            )
        self._added.add(leaf)
        oid = self._set(verb, leaf, data, sidecar)
        assert oid is not None
        return oid

    def archive(self, leaf: LeafName) -> None:
        """Take the text out of the branch; history keeps it."""
        standing = self.existing(leaf)
        assert standing.state is not None
        check_move(leaf.path, standing.state, State.ARCHIVED)
        if leaf in self._added:
            message = f"{leaf.path} is new in this transaction; it must be committed before it is archived."
            raise RefusedError(message, hint="Archive it in a later transaction.")
        data = self._shown(leaf, standing)
        old = standing.sidecar or Sidecar()
        withered = standing.state is State.WITHERED
        full = self._blob(bytes.fromhex(old.full_text)) if withered and old.full_text else data
        self._set(
            "archive",
            leaf,
            None,
            replace(
                old,
                state=State.ARCHIVED,
                ts=said_at(leaf, old, data, self._zone),
                blob=None if old.forgotten else hash_object("blob", full).hex(),
                archived_at=self._now,
                compression_ratio=ratio(full),
            ),
        )

    def _shown(self, leaf: LeafName, standing: Standing) -> bytes:
        if standing.shown is None:
            raise CorruptError(f"the text of {leaf.path} is not in the branch.", hint="Run gitmem doctor.")
        return self._blob(standing.shown)

    def wither(self, leaf: LeafName, keep: float, *, forget: bool) -> None:
        """Replace a raw text by its blur. With `forget`, say that the original is to be purged."""
        standing = self.existing(leaf)
        assert standing.state is not None
        if leaf.kind != "raw":
            raise RefusedError(
                f"{leaf.path} is a record; only raw text withers.", hint="Archive or release it."
            )
        old = standing.sidecar or Sidecar()
        again = forget and standing.state is State.WITHERED and not old.forgotten
        if not again:
            check_move(leaf.path, standing.state, State.WITHERED)
        if leaf in self._added:
            message = (
                f"{leaf.path} is written in this very transaction; it must be committed before it withers."
            )
            raise RefusedError(message, hint="Wither it in a later transaction.")
        data = self._shown(leaf, standing)
        text = decode(data, leaf.path)
        try:
            blurred = text if again else fade.blur(text, keep)
        except RefusedError as fault:
            raise RefusedError(f"{leaf.path}: {fault}", hint=fault.hint) from None
        blur = blurred.encode("utf-8")
        quoted = old.summary_by == "extract"
        self._set(
            "wither",
            leaf,
            blur,
            replace(
                old,
                state=State.WITHERED,
                forgotten=forget,
                ts=said_at(leaf, old, data, self._zone),
                blob=None if forget else hash_object("blob", data).hex(),
                blur=hash_object("blob", blur).hex() if forget else None,
                withered_at=old.withered_at or self._now,
                summary=(fade.extract(blurred) or None) if quoted else old.summary,
                summary_by=(old.summary_by if fade.extract(blurred) else None) if quoted else old.summary_by,
            ),
        )

    def restore(self, leaf: LeafName) -> None:
        """Make a leaf active again with its full text; an active one stays as it is."""
        standing = self.existing(leaf)
        assert standing.state is not None
        if standing.state is State.ACTIVE:
            return
        check_move(leaf.path, standing.state, State.ACTIVE)
        old = standing.sidecar or Sidecar()
        if old.forgotten:
            raise RefusedError(f"the original of {leaf.path} was forgotten; only its blur exists.")
        oid = archived_blob(self._repository, leaf, standing)
        self._set(
            "remember",
            leaf,
            self._blob(oid),
            replace(
                old,
                state=State.ACTIVE,
                ts=old.ts if self._needs_ts(leaf, old) else None,
                blob=None,
                archived_at=None,
                withered_at=None,
                compression_ratio=None,
            ),
        )

    def _needs_ts(self, leaf: LeafName, old: Sidecar) -> bool:
        """Whether the time would be lost with the field: the name or the record does not tell it."""
        return old.ts is not None and (leaf.kind == "raw") and old.ts != said_at(leaf, None, None, self._zone)

    def release(self, leaf: LeafName) -> None:
        """Put a tombstone in place of the leaf; a released leaf stays as it is."""
        # Even a leaf whose sidecar is damaged can be released.
        self._standings.setdefault(leaf, self._look(leaf, lenient=True))
        standing = self.existing(leaf)
        assert standing.state is not None
        if standing.state is State.RELEASED:
            return
        check_move(leaf.path, standing.state, State.RELEASED)
        if leaf in self._added:
            raise RefusedError(f"{leaf.path} is new in this transaction; it cannot be released in it.")
        self.changes[leaf.path] = None
        self.changes[leaf.sidecar] = sidecars.tombstone(standing.sidecar or Sidecar(), self._now)
        self._standings[leaf] = Standing(State.RELEASED)
        self.touched.append(("release", leaf))

    def amend(self, verb: str, leaf: LeafName, **fields: Any) -> None:
        """Set fields of the sidecar of a living leaf."""
        standing = self.existing(leaf)
        if standing.state is State.RELEASED:
            raise RefusedError(f"{leaf.path} was released.")
        old = standing.sidecar or Sidecar(state=standing.state or State.ACTIVE)
        shown = None if standing.shown is None else self._blob(standing.shown)
        self._set(verb, leaf, shown, replace(old, **fields))
