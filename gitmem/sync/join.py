"""Joining two changes of one thing that began from a common base: a leaf, a manifest. Pure.

Where only one side changed something, that side counts. Where both moved a leaf to another state,
released comes before archived, archived before withered, withered before active. Fields are
joined one by one; where both changed one, the later change counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from gitmem import sidecar as sidecars
from gitmem.manifest import Manifest
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store.objects import Oid

T = TypeVar("T")

_RANK = {State.ACTIVE: 0, State.WITHERED: 1, State.ARCHIVED: 2, State.RELEASED: 3}
_OF_STATE = frozenset(
    {"state", "forgotten", "blob", "blur", "archived_at", "withered_at", "released_at", "compression_ratio"}
)
_PLAIN = tuple(f.name for f in fields(Sidecar) if f.name not in _OF_STATE | {"extra"})


@dataclass(frozen=True, slots=True)
class Side:
    """A leaf as one side has it."""

    shown: Oid | None = None
    """The blob in the branch."""
    sidecar: bytes | None = None

    def __bool__(self) -> bool:
        return self.shown is not None or self.sidecar is not None

    @property
    def parsed(self) -> Sidecar:
        """The sidecar's fields; none where there is no sidecar.

        Raises:
            CorruptError: it is not a sidecar.
        """
        return Sidecar() if self.sidecar is None else sidecars.parse(self.sidecar, "sidecar")

    @property
    def is_tombstone(self) -> bool:
        return self.sidecar is not None and sidecars.is_tombstone(self.sidecar)

    @property
    def state(self) -> State | None:
        """None where there is no such leaf."""
        return self.parsed.state if self else None


def join_leaf(base: Side, ours: Side, theirs: Side, *, ours_later: bool) -> Side:
    """The leaf that both sides come to.

    `ours_later` says whose change counts where both changed a field. The sides must be of one leaf:
    see `is_clash`.

    Raises:
        CorruptError: a sidecar that both changed cannot be read.
    """
    if theirs == base or ours == theirs:
        return ours
    if ours == base:
        return theirs
    for side in (theirs, ours):
        if side.is_tombstone:
            return Side(None, side.sidecar)
    if not theirs or not ours:  # taken away with plain git on one side, changed on the other
        return ours or theirs
    lead = _leading(base, ours, theirs, ours_later=ours_later)
    joined = _fields(base.parsed, ours.parsed, theirs.parsed, ours_later=ours_later)
    leading = lead.parsed
    joined = replace(joined, **{name: getattr(leading, name) for name in _OF_STATE})
    shown = lead.shown
    rid = next((side for side in (theirs, ours) if side.parsed.forgotten), None)
    if rid is not None:
        blur = theirs.shown if theirs.state is State.WITHERED else bytes.fromhex(rid.parsed.blur or "")
        joined, shown = _forget(joined, blur or shown, rid.parsed)
    return Side(shown, sidecars.dump(joined))


def _leading(base: Side, ours: Side, theirs: Side, *, ours_later: bool) -> Side:
    """The side whose state counts."""
    mine, its = ours.state or State.ACTIVE, theirs.state or State.ACTIVE
    if mine is its:
        # What both made of it apart from each other stays as it is there: a blur is made once.
        alone = _changed_alone(_bundle(base), _bundle(ours), _bundle(theirs))
        ours_first = (ours_later and mine is State.ACTIVE) if alone is None else alone
    elif mine is base.state:
        ours_first = False
    elif its is base.state:
        ours_first = True
    else:
        ours_first = _RANK[mine] > _RANK[its]
    return ours if ours_first else theirs


def _changed_alone(base: object, ours: object, theirs: object) -> bool | None:
    """Whether ours alone changed it (True) or theirs alone (False); None where both did, or none."""
    if (ours == base) is (theirs == base):
        return None
    return ours != base


def _bundle(side: Side) -> tuple[object, ...]:
    parsed = side.parsed
    return (side.shown, *(getattr(parsed, name) for name in sorted(_OF_STATE)))


def _forget(joined: Sidecar, blur: Oid | None, rid: Sidecar) -> tuple[Sidecar, Oid | None]:
    """What one side forgot, nobody has any more; the leaf can then not be active."""
    state = State.ARCHIVED if joined.state is State.ARCHIVED else State.WITHERED
    quoted = joined.summary_by == "extract"  # of the original
    joined = replace(
        joined,
        state=state,
        forgotten=True,
        blob=None,
        blur=None if blur is None else blur.hex(),
        summary=rid.summary if quoted else joined.summary,
        summary_by=rid.summary_by if quoted else joined.summary_by,
        withered_at=joined.withered_at or rid.withered_at,
    )
    return joined, None if state is State.ARCHIVED else blur


def _fields(base: Sidecar, ours: Sidecar, theirs: Sidecar, *, ours_later: bool) -> Sidecar:
    values = {
        name: join_value(
            getattr(base, name), getattr(ours, name), getattr(theirs, name), ours_later=ours_later
        )
        for name in _PLAIN
    }
    return Sidecar(**values, extra=join_mapping(base.extra, ours.extra, theirs.extra, ours_later=ours_later))


def join_value(base: T, ours: T, theirs: T, *, ours_later: bool) -> T:
    """The value that counts."""
    if ours == base:
        return theirs
    if theirs == base:
        return ours
    return ours if ours_later else theirs


def join_mapping(
    base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any], *, ours_later: bool
) -> dict[str, Any]:
    """A mapping joined key by key, in their order, then ours."""
    out = {}
    for key in dict.fromkeys([*theirs, *ours]):
        value = join_value(base.get(key), ours.get(key), theirs.get(key), ours_later=ours_later)
        if value is not None:
            out[key] = value
    return out


def is_clash(base: Side, ours: Side, theirs: Side) -> bool:
    """Whether both sides made, apart from each other, leaves of one name that hold other texts.

    A tombstone is no clash: it counts for the name.
    """
    if not ours or not theirs or ours.is_tombstone or theirs.is_tombstone:
        return False
    if not base:
        return _texts(ours).isdisjoint(_texts(theirs))
    # Texts never change; where a host without rules let both change, both are kept.
    active = ours.state is theirs.state is State.ACTIVE
    return active and len({base.shown, ours.shown, theirs.shown}) == 3 and base.state is State.ACTIVE


def _texts(side: Side) -> set[str]:
    """Ids of the leaf's text, sharp and blurred."""
    parsed = side.parsed
    shown = side.shown.hex() if side.shown else None
    return {oid for oid in (shown, parsed.blob, parsed.blur) if oid}


def join_manifest(base: Manifest | None, ours: Manifest, theirs: Manifest, *, ours_later: bool) -> Manifest:
    """The manifest that both sides come to; without a base, ours only adds what theirs does not say."""
    if base is None:
        base = Manifest(root=ours.root, persona=ours.persona)
        ours_later = False
    values = {
        f.name: join_value(
            getattr(base, f.name), getattr(ours, f.name), getattr(theirs, f.name), ours_later=ours_later
        )
        for f in fields(Manifest)
        if f.name != "extra"
    }
    # Who it is, and in which zone, was fixed when the persona was made.
    fixed = {name: getattr(theirs, name) for name in ("root", "persona", "timezone", "format", "purge")}
    extra = join_mapping(base.extra, ours.extra, theirs.extra, ours_later=ours_later)
    return Manifest(**(values | fixed), extra=extra)
