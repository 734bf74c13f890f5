"""What one branch comes to, here and there: computed from both histories, nothing stored.

Both sides are purged by the tombstones of both, by the same function that every home uses. Then
one of them is an ancestor of the other, or ours is recreated on theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gitmem import sidecar as sidecars
from gitmem.errors import GitmemError
from gitmem.states import State
from gitmem.store.objects import Commit, Oid, Read, Stage, history
from gitmem.store.purge import Rewrite, Victims, find_victims
from gitmem.store.repository import MAIN
from gitmem.sync import replay
from gitmem.sync.join import Side
from gitmem.sync.replay import Outcome, Replay
from gitmem.tracepath import LeafName

_ASKED = 8
"""So many objects of a released leaf are asked for on the other side."""
History = Sequence[tuple[Oid, Commit]]


@dataclass(frozen=True, slots=True)
class Tips:
    """Where a branch stands."""

    ours: Oid | None
    theirs: Oid | None
    """The other side's tip, or where its own tip cannot be read, that tip as purged before."""
    raw: Oid | None
    """The other side's tip as it is."""
    seen: Oid | None
    """The other side's tip at the last sync, purged."""


@dataclass(slots=True)
class Plan:
    """What to do with one branch."""

    branch: str
    tips: Tips
    stage: Stage
    """New objects of this plan, over both sides."""
    target: Oid | None = None
    """Where our branch goes; None where there is none."""
    theirs: Oid | None = None
    """The other side's tip, purged."""
    push: Oid | None = None
    """What to push, if anything."""
    taken: int = 0
    """Commits of theirs that ours lacked."""
    sent: int = 0
    """Commits of ours that theirs lacks."""
    replayed: Outcome | None = None
    rescue: Oid | None = None
    """Set where theirs was rewritten without a release: nothing is changed then."""
    lacks_raw: bool = False
    """To push, the other side's own tip must be fetched first."""
    asked: list[Oid] = field(default_factory=list)
    """Objects of released leaves that the other side had."""
    holds: bool = False
    """Whether the other side's history holds what either side released or forgot."""
    released: int = 0
    """Leaves that theirs had released and ours had not."""
    telling: int = 0
    """Leaves that ours had released and theirs had not."""

    @property
    def purges(self) -> bool:
        """Whether our old tip leads to what the new one does not."""
        if self.target is None or self.tips.ours in (None, self.target):
            return False
        return all(oid != self.tips.ours for oid, _ in history([self.target], self.stage.read))


def make(branch: str, tips: Tips, read: Read) -> Plan:
    """The plan for a branch of which at least one side has something.

    Raises:
        CorruptError: an object cannot be read.
    """
    if tips.ours == tips.theirs == tips.raw:
        return Plan(branch, tips, Stage(read), target=tips.ours, theirs=tips.theirs)
    start = [tip for tip in (tips.theirs, tips.ours) if tip is not None]
    found = [Victims() if branch == MAIN else find_victims(read, tip) for tip in start]
    victims = _both(found)
    if tips.ours is not None and tips.theirs is not None:
        victims = _with_their_blurs(victims, tips.theirs, read)
    rewrite = Rewrite(read, victims)
    plan = Plan(branch, tips, rewrite.stage)
    known = [*start, tips.seen] if tips.seen is not None else start
    if victims:
        rewrite.run(known)
    clean = rewrite.commits if victims else {tip: tip for tip in known}
    ours = None if tips.ours is None else clean[tips.ours]
    plan.target = ours
    if tips.theirs is None:
        plan.push, plan.sent = ours, len(history([ours], plan.stage.read)) if ours else 0
        plan.telling = len(_all(victims))
        return plan
    plan.theirs = clean[tips.theirs]
    _meet(plan, ours, None if tips.seen is None else clean[tips.seen], rewrite, victims)
    if len(found) > 1:
        plan.released, plan.telling = len(_all(victims) - _all(found[1])), len(_all(victims) - _all(found[0]))
    plan.holds = plan.theirs != tips.raw and (tips.raw != tips.theirs or _holds(rewrite, tips.theirs))
    if plan.holds and tips.raw == tips.theirs:
        plan.asked = _asked(victims, tips, rewrite.stage)
    return plan


def _holds(rewrite: Rewrite, tip: Oid) -> bool:
    """Whether purging changes a tree. Where it only gives messages their fixed form, no text was there."""
    read = rewrite.stage.read
    made = ((commit, Commit.parse(read(rewrite.commits[oid])[1])) for oid, commit in history([tip], read))
    return any(old.tree != new.tree for old, new in made)


def _all(victims: Victims) -> frozenset[LeafName]:
    return victims.released | victims.forgotten.keys()


def _both(found: Sequence[Victims]) -> Victims:
    """What either side released or forgot; theirs, which comes first, says which blur stays."""
    forgotten = {leaf: blur for victims in reversed(found) for leaf, blur in victims.forgotten.items()}
    return Victims(frozenset().union(*(victims.released for victims in found)), forgotten)


def _with_their_blurs(victims: Victims, theirs: Oid, read: Read) -> Victims:
    """Where theirs shows a blur of what ours forgot, that blur stays."""
    stage = Stage(read)
    tree = Commit.parse(read(theirs)[1]).tree
    blurs = dict(victims.forgotten)
    for leaf in blurs:
        side = replay.side_of(stage, tree, leaf)
        if side.shown is not None and _state(side) is State.WITHERED:
            blurs[leaf] = side.shown
    return Victims(victims.released, blurs)


def _state(side: Side) -> State | None:
    try:
        return side.state
    except GitmemError:
        return None


def _meet(plan: Plan, ours: Oid | None, seen: Oid | None, rewrite: Rewrite, victims: Victims) -> None:
    read, theirs = plan.stage.read, plan.theirs
    assert theirs is not None
    if ours == theirs:
        return
    its = history([theirs], read)
    if ours is None:
        plan.target, plan.taken = theirs, len(its)
        return
    mine = history([ours], read)
    in_its, in_mine = {oid for oid, _ in its}, {oid for oid, _ in mine}
    new_there = [entry for entry in its if entry[0] not in in_mine]
    new_here = [entry for entry in mine if entry[0] not in in_its]
    plan.taken = len(new_there)
    if ours in in_its:
        plan.target = theirs
        return
    if new_there:
        if seen is not None and seen not in in_its:
            plan.rescue, plan.taken = theirs, 0
            return
        plan.replayed = Replay(plan.stage, theirs, new_there).run(new_here)
        plan.target = plan.replayed.tip
        new_here = [(oid, Commit.parse(plan.stage.data(oid))) for oid in plan.replayed.made]
    plan.sent = len(new_here)
    if new_here:
        _send(plan, new_here, rewrite, victims)


def _send(plan: Plan, new: History, rewrite: Rewrite, victims: Victims) -> None:
    """Push ours as it is, or made anew on a history that is not purged yet."""
    target, tips = plan.target, plan.tips
    assert target is not None
    if plan.theirs == tips.raw:
        plan.push = target
    elif tips.raw != tips.theirs:
        plan.lacks_raw = True
    else:
        assert tips.raw is not None
        back = {rewrite.commits[oid]: oid for oid, _ in history([tips.raw], plan.stage.read)}
        plan.push = replay.onto_unpurged(plan.stage, new, back, victims)[target]


def _asked(victims: Victims, tips: Tips, stage: Stage) -> list[Oid]:
    """Texts, and a commit, that the other side had and should no longer give to anybody."""
    assert tips.raw is not None
    tree = Commit.parse(stage.data(tips.raw)).tree
    found: list[Oid] = []
    for leaf in sorted(victims.released | victims.forgotten.keys()):
        side = replay.side_of(stage, tree, leaf)
        if side.sidecar is not None and sidecars.is_tombstone(side.sidecar):
            continue
        named = _full_text(side.sidecar)
        found += [oid for oid in (side.shown, named) if oid is not None]
    return [*[*dict.fromkeys(found)][: _ASKED - 1], tips.raw]


def _full_text(data: bytes | None) -> Oid | None:
    try:
        blob = None if data is None else sidecars.parse(data, "sidecar").blob
    except GitmemError:
        return None
    return None if blob is None else bytes.fromhex(blob)


def waiting(branches: Mapping[str, Oid], seen: Mapping[str, Oid], read: Read) -> dict[str, int]:
    """How many commits of each branch the other side did not have when it was last asked."""
    found = {}
    for name, tip in branches.items():
        if tip == seen.get(name):
            continue
        stop = {oid for oid, _ in history([seen[name]], read)} if name in seen else set()
        count = len(history([tip], read, stop))
        if count:
            found[name] = count
    return found
