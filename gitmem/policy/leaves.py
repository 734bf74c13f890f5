"""Rules for one leaf between two trees: which change of its text and sidecar is one of gitmem's verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError
from gitmem.fade import is_blur
from gitmem.policy.rules import Limits, Released, Violation
from gitmem.sidecar import Sidecar
from gitmem.states import State, is_legal
from gitmem.store.objects import Oid
from gitmem.tracepath import LeafName

ReadBlob = Callable[[Oid], bytes]


@dataclass(frozen=True, slots=True)
class Held:
    """What a tree holds of a leaf."""

    text: Oid | None = None
    sidecar: Oid | None = None


NOTHING = Held()


@dataclass(frozen=True, slots=True)
class _Standing:
    """How a leaf stands in a tree."""

    state: State | None
    text: Oid | None
    sidecar: Sidecar

    @property
    def full(self) -> Oid | None:
        """The blob of the full text, where it is known."""
        if self.state is State.ACTIVE:
            return self.text
        return bytes.fromhex(self.sidecar.blob) if self.sidecar.blob else None


def _stand(held: Held, read: ReadBlob) -> _Standing:
    """How a leaf stands; a sidecar that cannot be parsed counts as empty (its form is another rule)."""
    try:
        sidecar = sidecars.parse(read(held.sidecar), "sidecar") if held.sidecar else Sidecar()
    except CorruptError:
        sidecar = Sidecar()
    if sidecar.state is State.ACTIVE:
        return _Standing(State.ACTIVE if held.text else None, held.text, sidecar)
    return _Standing(sidecar.state, held.text, sidecar)


def check_leaf(
    leaf: LeafName,
    before: Held,
    after: Held,
    read: ReadBlob,
    *,
    limits: Limits,
    released: Released,
    joined: bool = False,
    purged: bool = False,
) -> Iterator[Violation]:
    """Whether a commit may turn a leaf from `before` into `after`.

    `joined` says that another parent of the commit, a merge, holds exactly `after`: there the leaf
    got so by steps of its own. `purged` says that its original was forgotten before it ever came
    here: its blur stands in all its history.
    """
    old, new = _stand(before, read), _stand(after, read)
    if old.state is State.RELEASED:
        yield from _check_released(leaf, before, after, new, joined=joined)
        return
    if new.state is None:
        if old.state is not None:
            yield Violation("leaf.vanished", leaf.path, "its text left the branch, and no sidecar says why.")
        elif after.sidecar is not None:
            yield Violation("sidecar.fits", leaf.sidecar, "it speaks of a leaf that is not there.")
        return
    yield from _check_fits(leaf, new, purged=purged)
    if new.state is State.RELEASED:
        yield from _check_tombstone(leaf, after, old, read, joined=joined)
    elif old.state is None and (epoch := released(leaf)) is not None:
        yield Violation("leaf.released", leaf.path, f"that name was released in {epoch}.")
    yield from _check_move(leaf, old, new, joined=joined)
    yield from _check_bytes(leaf, old, new, read, joined=joined, purged=purged)
    forgets = new.sidecar.forgotten and not old.sidecar.forgotten
    if (new.state is State.RELEASED or forgets) and not joined and not limits.may_release:
        yield Violation("release.role", leaf.path, "this account may not release.")


def _check_released(
    leaf: LeafName, before: Held, after: Held, new: _Standing, *, joined: bool
) -> Iterator[Violation]:
    if after.text is not None or new.state is not State.RELEASED:
        yield Violation("leaf.released", leaf.path, "it was released, and this brings it back.")
    elif after.sidecar != before.sidecar and not joined:
        yield Violation("leaf.released", leaf.sidecar, "its tombstone was changed.")


def _check_fits(leaf: LeafName, new: _Standing, *, purged: bool) -> Iterator[Violation]:
    """A state's sidecar and text belong together."""
    if new.state in (State.ARCHIVED, State.RELEASED) and new.text is not None:
        yield Violation("sidecar.fits", leaf.sidecar, f"it says {new.state}, and the text is in the branch.")
    if new.state is State.WITHERED and new.text is None:
        yield Violation("sidecar.fits", leaf.sidecar, "it says withered, and no blur is in the branch.")
    said = new.sidecar
    if leaf.kind == "raw" and (said.human_visible is not None or said.told_at or said.synced_page_id):
        yield Violation("sidecar.fits", leaf.sidecar, "it shows a text to humans; only records are shown.")
    if new.state in (State.WITHERED, State.ARCHIVED) and new.sidecar.full_text is None and not purged:
        yield Violation("leaf.blob", leaf.sidecar, "it does not say which blob the full text is.")


def _check_tombstone(
    leaf: LeafName, after: Held, old: _Standing, read: ReadBlob, *, joined: bool
) -> Iterator[Violation]:
    assert after.sidecar is not None
    data = read(after.sidecar)
    said = sidecars.parse(data, leaf.sidecar)
    if said.released_at is None or data != sidecars.tombstone(said, said.released_at):
        what = (
            "it is not of canonical form: state, released_at, turn_id and role, in this order, nothing else."
        )
        yield Violation("tombstone.form", leaf.sidecar, what)
    elif (
        old.state is not None
        and not joined
        and (said.turn_id, said.role) != (old.sidecar.turn_id, old.sidecar.role)
    ):
        yield Violation("tombstone.form", leaf.sidecar, "turn_id and role are not those of the leaf.")


def _check_move(leaf: LeafName, old: _Standing, new: _Standing, *, joined: bool) -> Iterator[Violation]:
    assert new.state is not None
    if leaf.kind == "hldp" and new.state is State.WITHERED:
        yield Violation("leaf.move", leaf.path, "a record does not wither.")
    forgets = new.sidecar.forgotten and not old.sidecar.forgotten
    # One home archived it, another forgot its original: the blur is shown once, then archived.
    joins_archived = forgets and old.state is State.ARCHIVED and new.state is State.WITHERED
    if old.state is None:
        if new.state in (State.WITHERED, State.ARCHIVED) and not joined:
            what = f"it is {new.state} from the start; its text must be in a commit before that."
            yield Violation("leaf.move", leaf.path, what)
    elif old.state is not new.state and not is_legal(old.state, new.state) and not joins_archived:
        yield Violation("leaf.move", leaf.path, f"a leaf that is {old.state} cannot become {new.state}.")
    if forgets and new.state is State.ARCHIVED and not joined:
        yield Violation("leaf.move", leaf.path, "an original is forgotten by wither, not by archive.")
    if old.sidecar.forgotten and new.state is not State.RELEASED:
        kept = (new.sidecar.forgotten, new.sidecar.blur) == (True, old.sidecar.blur)
        if new.state is State.ACTIVE or not kept:
            yield Violation("leaf.forgotten", leaf.path, "its original was forgotten; only the blur exists.")


def _check_bytes(
    leaf: LeafName, old: _Standing, new: _Standing, read: ReadBlob, *, joined: bool, purged: bool
) -> Iterator[Violation]:
    """No change of state changes what was said."""
    if old.state is None or new.state is State.RELEASED:
        return
    if old.full and new.full and old.full != new.full:
        if new.state is State.ACTIVE:
            yield Violation("leaf.changed", leaf.path, "its bytes are not what they were.")
        else:
            yield Violation("leaf.blob", leaf.sidecar, "it does not name the text that was there.")
    if new.sidecar.forgotten and new.sidecar.blob:
        yield Violation("leaf.forgotten", leaf.sidecar, "it is forgotten, and still names the original.")
    if new.state is State.WITHERED and new.text is not None:
        if old.state is State.WITHERED and new.text != old.text and not joined:
            yield Violation("leaf.changed", leaf.path, "its blur is not what it was.")
        elif old.state is State.ACTIVE and old.text and not purged and not _is_blur(old.text, new.text, read):
            yield Violation("leaf.blur", leaf.path, "it holds more than the original says, or all of it.")
    forgotten = new.state is State.WITHERED and new.sidecar.forgotten
    if forgotten and new.text is not None and new.sidecar.blur != new.text.hex():
        yield Violation("leaf.blob", leaf.sidecar, "blur is not the blob of the text in the branch.")


def _is_blur(text: Oid, blur: Oid, read: ReadBlob) -> bool:
    sharp, blurred = (read(oid).decode("utf-8", "surrogateescape") for oid in (text, blur))
    return is_blur(sharp, blurred)
