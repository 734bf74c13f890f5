"""What is to become of one branch of a working copy, worked out before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gitmem.clone.files import between, without_merges
from gitmem.clone.folder import ORIGIN, git_in
from gitmem.errors import CorruptError
from gitmem.store.objects import Commit, Oid, Read, history
from gitmem.store.purge import MESSAGE, Rewrite, Victims, find_victims
from gitmem.sync.replay import Replay
from gitmem.tracepath import LeafName


class StopError(Exception):
    """A branch that must be left as it is, why, and what to do about it."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


@dataclass(slots=True)
class Tips:
    """Where a branch stands: there now, here, and where the other side's stood when last seen."""

    remote: Oid | None
    local: Oid | None
    tracking: Oid | None
    folder: str
    """Where git works on it: where it is checked out, else where `main` is."""
    shown: bool
    """Whether it is checked out."""


@dataclass(slots=True)
class Plan:
    """The new state of a branch, whose objects are still in memory."""

    name: str
    tips: Tips
    victims: Victims
    rewrite: Rewrite
    tracking: Oid | None = None
    """The other side's branch without released leaves."""
    target: Oid | None = None
    """What the branch here becomes; None where there is none."""
    mapped: dict[Oid, Oid] = field(default_factory=dict)
    """Commits that this clone knows, old to new, those that change."""
    taken: int = 0
    waiting: int = 0
    local_releases: int = 0
    """Tombstones that are only here."""
    notes: list[str] = field(default_factory=list)
    """Sentences for a person."""

    @property
    def is_clean(self) -> bool:
        """Whether the other side's branch holds nothing that was released."""
        return self.tips.remote is None or self.tracking == self.tips.remote

    @property
    def hushed(self) -> set[Oid]:
        """Commits whose message is not kept."""
        data = self.rewrite.stage.data
        return {
            old
            for old, new in self.mapped.items()
            if Commit.parse(data(new)).message == MESSAGE != Commit.parse(data(old)).message
        }

    def new_of(self, oid: Oid) -> Oid:
        """What a commit becomes."""
        return self.mapped.get(oid, oid)


def victims_of(read: Read, tips: Iterable[Oid | None]) -> Victims:
    """What the tombstones of several tips of one epoch name; the first counts where they differ."""
    released: set[LeafName] = set()
    forgotten: dict[LeafName, Oid] = {}
    for tip in dict.fromkeys(tips):
        if tip is not None:
            found = find_victims(read, tip)
            released |= found.released
            forgotten = {**found.forgotten, **forgotten}
    return Victims(frozenset(released), forgotten)


class Roots:
    """The first commits of histories, found once for each commit."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._found: dict[Oid, frozenset[Oid]] = {}

    def of(self, tip: Oid) -> frozenset[Oid]:
        """Roots that a commit leads to; none where its history is not whole."""
        try:
            for oid, commit in history([tip], self._read, self._found):
                above = [self._found[parent] for parent in commit.parents]
                self._found[oid] = frozenset().union(*above) if above else frozenset([oid])
        except CorruptError:
            return frozenset()
        return self._found[tip]


def map_commits(rewrite: Rewrite, known: Iterable[Oid], stashes: Iterable[Oid]) -> dict[Oid, Oid]:
    """Old to new, of those among `known` that change. One whose history is not whole stays as it is."""
    mapped: dict[Oid, Oid] = {}
    for oid in known:
        try:
            rewrite.run([oid])
        except CorruptError:
            continue
        if rewrite.commits[oid] != oid:
            mapped[oid] = rewrite.commits[oid]
    for oid in set(stashes) & mapped.keys():
        mapped[oid] = _hush_stash(rewrite, mapped[oid])
    return mapped


def _hush_stash(rewrite: Rewrite, oid: Oid) -> Oid:
    """A stash quotes the subject of the commit it was made on, also in the commit of its index."""
    stage = rewrite.stage

    def hush(oid: Oid, parents: Iterable[Oid]) -> Oid:
        commit = Commit.parse(stage.data(oid))
        return stage.put("commit", Commit(commit.tree, tuple(parents), commit.headers, MESSAGE).format())

    base, *others = Commit.parse(stage.data(oid)).parents
    inner = [hush(other, Commit.parse(stage.data(other)).parents) for other in others]
    return hush(oid, (base, *inner))


def make_plan(
    name: str,
    tips: Tips,
    victims: Victims,
    read: Read,
    known: Iterable[Oid] = (),
    stashes: Iterable[Oid] = (),
) -> Plan:
    """Work out what a branch becomes.

    Raises:
        StopError: both sides changed one file, or the other side's history was rewritten.
    """
    rewrite = Rewrite(read, victims)
    own = [tip for tip in (tips.remote, tips.tracking, tips.local) if tip is not None]
    plan = Plan(name, tips, victims, rewrite)
    if victims:
        plan.mapped = map_commits(rewrite, [*own, *known], stashes)
    source = tips.remote if tips.remote is not None else tips.tracking
    plan.tracking = None if source is None else plan.new_of(source)
    before = None if tips.tracking is None else plan.new_of(tips.tracking)
    _check_not_rewritten(plan, before)
    if plan.tracking is not None and plan.tracking != before:
        plan.taken = len(_since(rewrite, plan.tracking, before))
    if tips.local is not None:
        plan.target = _target(plan, plan.new_of(tips.local))
        plan.waiting = len(_since(rewrite, plan.target, plan.tracking))
        if plan.waiting and plan.tracking is not None:
            ours = find_victims(rewrite.stage.read, plan.target).released
            plan.local_releases = len(ours - victims.released)
    return plan


def _since(rewrite: Rewrite, tip: Oid, base: Oid | None) -> Mapping[Oid, Commit]:
    read = rewrite.stage.read
    return dict(history([tip], read) if base is None else between(tip, base, read)) if tip != base else {}


def _check_not_rewritten(plan: Plan, before: Oid | None) -> None:
    after = plan.tracking
    if before is None or after is None or before == after:
        return
    if _since(plan.rewrite, before, after) and _since(plan.rewrite, after, before):
        name = plan.name
        raise StopError(
            f"the history of {name} was rewritten on the other side, and no release explains it",
            _take_theirs(plan),
        )


def _take_theirs(plan: Plan) -> str:
    """How a person takes the other side's branch and keeps the one here under another name."""
    name, place = plan.name, plan.tips.folder
    theirs = f"{ORIGIN}/{name}"
    fetch = f"Ask there why. To take theirs: {git_in(place, 'fetch')}"
    if plan.tips.local is None:
        return f"{fetch}."
    move = ("reset", "-q", "--keep", theirs) if plan.tips.shown else ("branch", "-f", name, theirs)
    keep = git_in(place, "branch", f"{name}-before", name)
    return f"{fetch} && {keep} && {git_in(place, *move)}. What is here stays as the branch {name}-before."


def _target(plan: Plan, ours: Oid) -> Oid:
    tips, theirs = plan.tips, plan.tracking
    if theirs is None or ours == theirs:
        return ours
    read = plan.rewrite.stage.read
    mine = between(ours, theirs, read)
    if not mine:
        return theirs
    newer = between(theirs, ours, read)
    if not newer:
        return ours
    stage = plan.rewrite.stage
    outcome = Replay(stage, theirs, newer).run(without_merges(mine, stage))
    if outcome.conflicts:
        raise StopError(
            " ".join(outcome.conflicts),
            f"{git_in(tips.folder, 'pull', '--rebase', ORIGIN, plan.name)}, and choose what it shall be.",
        )
    both = {**outcome.renamed, **outcome.dropped}
    plan.notes = [
        f"{plan.name}: {old} is {new} now: the other side has the name, or the turn."
        for old, new in both.items()
    ]
    return outcome.tip
