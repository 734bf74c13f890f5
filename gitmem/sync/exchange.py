"""The exchange between one persona's repository and one remote.

It goes in rounds, until one finds both sides equal: ask what is there, fetch into a throw-away
repository, plan each branch, take in under the repository's lock, push. What is fetched enters the
repository only as the plan has purged it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gitmem import host
from gitmem import manifest as manifests
from gitmem.errors import CorruptError, GitmemError, RefusedError
from gitmem.manifest import Manifest
from gitmem.report import Place, Reach
from gitmem.store import erase, pack
from gitmem.store.objects import Oid, Stage
from gitmem.store.refs import HEADS, StaleRefError
from gitmem.store.repository import MAIN, Repository
from gitmem.store.trees import find_blob
from gitmem.store.wire import Incoming, Reply, Wire
from gitmem.sync import plan as plans
from gitmem.sync import remotes
from gitmem.sync.plan import Plan, Tips
from gitmem.sync.remotes import Remote
from gitmem.sync.report import WIKI, BranchReport, RemoteReport
from gitmem.tracepath import is_epoch

_ROUNDS = 10
_PATIENCE = 5.0
_LONG_PATIENCE = 30.0
"""Seconds to wait for a purge there to end: on a host that may have hooks, and on one that has."""
_FEW = 400
"""Up to so many new objects become files of their own, more become a pack."""
_GC = "git reflog expire --expire=now --expire-unreachable=now --all && git gc --prune=now"


class Exchange:
    """One repository and one remote, brought to the same."""

    def __init__(
        self,
        repository: Repository,
        remote: Remote,
        report: RemoteReport,
        *,
        manifest: Manifest | None,
        rewrite_remote: bool = False,
        pages: bool = False,
    ) -> None:
        """`manifest` says who the persona must be; None takes whoever is there.

        `pages`: it is the wiki, whose one branch is `main`; nobody but a person joins two versions
        of a page.
        """
        self._repository = repository
        self._remote = remote
        self._wire: Wire = remote.wire(wiki=pages)
        self._pages = pages
        self._report = report
        self._manifest = manifest
        self._rewrite_remote = rewrite_remote
        self._tracking = f"refs/remotes/{remote.name}/"
        self._rescue = f"refs/rescue/{remote.name}/"
        self._raw = remotes.load_seen(repository, remote.name)
        """Tips of branches that hold released text there; our tracking refs hold them purged."""
        self._refused: dict[str, Oid | None] = {}
        """Branches whose push was refused, and the remote's tip then."""
        self._known = dict(self._raw)
        """Where it was so at the last sync: nothing purges there."""
        self._own: dict[str, Oid] = {}
        """What we pushed, and its host did not purge although its hooks had their time."""
        self._hooked = False
        """Whether gitmem's hooks answered there."""
        self._unsettled: list[str] = []
        """Branches that the last round left to another one."""
        self._forced: set[str] = set()
        self._asked: dict[str, list[Oid]] = {}

    def run(self) -> None:
        """Exchange everything; what happened is in the report.

        Raises:
            UnavailableError: the remote cannot be reached, or this repository not be read.
            RefusedError: it holds another persona.
        """
        self._repository.drop_incoming()
        self._come_to_rest()
        for _ in range(_ROUNDS):
            if self._report.dry_run or not self._purge_went_on():
                break
            self._come_to_rest()
        self._drop_rescues()
        self._look_for_released()

    def _come_to_rest(self) -> None:
        """Rounds, until one leaves nothing to do."""
        for _ in range(_ROUNDS):
            if self._round() or self._report.dry_run:
                return
        for name in self._unsettled:
            what = f"{WIKI if self._pages else name} moved here or there in each of {_ROUNDS} rounds"
            self._branch(name).stopped = f"{what}; run gitmem sync again."

    def _purge_went_on(self) -> bool:
        """Whether a branch that holds released text moves on there, if it is given a while.

        A push that releases moves the branch first and purges then; another home may look in between.
        """
        names = self._may_move()
        if not names:
            return False

        def moved() -> bool:
            there = self._wire.refs()
            return any(there.get(HEADS + name) != self._raw[name] for name in names)

        return host.wait(moved, _LONG_PATIENCE if self._hooked else _PATIENCE, pause=0.25, longest=2.0)

    def _may_move(self) -> list[str]:
        """Branches that hold released text there, perhaps only until a purge ends."""
        rest = self._known if self._hooked else self._known | self._own
        return [name for name, oid in self._raw.items() if rest.get(name) != oid]

    def _round(self) -> bool:
        """One round; whether nothing was left to do."""
        there = {name[len(HEADS) :]: oid for name, oid in self._wire.refs().items() if name.startswith(HEADS)}
        for name in [name for name in there if not self._is_ours(name)]:
            note = "it is no epoch, and was left alone there."
            if not self._pages and note not in self._branch(name).notes:
                self._branch(name).notes.append(note)
            del there[name]
        self._forget_raw({name for name, oid in self._raw.items() if there.get(name) != oid})
        moved = self._moved(there)
        if not moved:
            return True
        with Incoming(self._repository) as incoming:
            made = self._plan(incoming, there, moved)
            if self._report.dry_run:
                self._tell(made)
                return True
            taken = self._take(incoming, made)
            pushed = self._push(incoming, [plan for plan in made if plan.branch in taken])
        self._unsettled = sorted({plan.branch for plan in made} - taken | pushed)
        return not self._unsettled

    def _is_ours(self, name: str) -> bool:
        return name == MAIN or (not self._pages and is_epoch(name))

    def _branch(self, name: str) -> BranchReport:
        return self._report.branch(WIKI if self._pages else name)

    def _here(self) -> dict[str, Oid]:
        """Our branches that take part."""
        heads = self._repository.refs.heads()
        return {name: oid for name, oid in heads.items() if not self._pages or name == MAIN}

    # -- planning ----------------------------------------------------------------------------

    def _moved(self, there: Mapping[str, Oid]) -> list[str]:
        """Branches that are not the same here, there, and when last seen."""
        here, seen = self._here(), self._seen()
        names = sorted(here.keys() | there.keys())
        return [name for name in names if not here.get(name) == there.get(name) == seen.get(name)]

    def _plan(self, incoming: Repository, there: Mapping[str, Oid], moved: list[str]) -> list[Plan]:
        here, seen = self._here(), self._seen()
        unknown = [
            name
            for name in moved
            if there.get(name) not in (None, here.get(name), seen.get(name), self._raw.get(name))
        ]
        fetched = self._fetch(incoming, unknown, there)
        if not self._pages:
            self._check_persona(incoming, fetched, there)
        made = []
        for name in moved:
            raw = fetched.get(name, there.get(name))
            plan = self._plan_one(incoming, name, Tips(here.get(name), raw, raw, seen.get(name)))
            if plan.lacks_raw:
                raw = self._fetch(incoming, [name], there)[name]
                plan = plans.make(name, replace(plan.tips, theirs=raw, raw=raw), incoming.reader())
            if self._pages and plan.replayed is not None and plan.replayed.conflicts:
                self._stop_pages(plan)
            made.append(plan)
        return made

    def _stop_pages(self, plan: Plan) -> None:
        """Both sides changed one page: nothing is done with the wiki."""
        assert plan.replayed is not None
        self._branch(plan.branch).stopped = (
            f"{' '.join(plan.replayed.conflicts)} Nothing was done with the pages: "
            "join the page by hand in a clone of the wiki, push it, then gitmem sync."
        ).replace("; theirs is kept.", ".")
        plan.target, plan.theirs, plan.push, plan.replayed = plan.tips.ours, None, None, None
        plan.taken = plan.sent = 0

    def _plan_one(self, incoming: Repository, name: str, tips: Tips) -> Plan:
        if tips.raw is not None and self._raw.get(name) == tips.raw and tips.seen is not None:
            tips = replace(tips, theirs=tips.seen)  # as it was purged before; it need not be fetched
        return plans.make(name, tips, incoming.reader())

    def _seen(self) -> dict[str, Oid]:
        found = self._repository.refs.all(self._tracking)
        return {name[len(self._tracking) :]: oid for name, oid in found.items()}

    def _fetch(self, incoming: Repository, names: Iterable[str], there: Mapping[str, Oid]) -> dict[str, Oid]:
        """Fetch branches; their tips, which may be newer than `there` says."""
        specs = [f"+{HEADS}{name}:{HEADS}{name}" for name in names if name in there]
        if not specs:
            return {}
        self._wire.fetch(incoming.folder, specs)
        return dict(incoming.refs.heads())

    def _check_persona(
        self, incoming: Repository, fetched: Mapping[str, Oid], there: Mapping[str, Oid]
    ) -> None:
        """Raise `RefusedError` unless the remote is empty, or holds this very persona."""
        tip = fetched.get(MAIN, there.get(MAIN))
        if tip is None and there and not self._seen():
            raise RefusedError(f"{self._remote.url} holds no persona: it has no branch main.")
        if tip is None or (MAIN not in fetched and tip not in incoming):
            return
        file = find_blob(incoming.commit_at(tip).tree, manifests.FILE_NAME, incoming.read)
        if file is None:
            raise RefusedError(f"{self._remote.url} holds no persona: main has no {manifests.FILE_NAME}.")
        theirs = manifests.parse(incoming.blob(file), f"{manifests.FILE_NAME} of {self._remote.url}")
        ours = self._manifest
        if ours is not None and theirs.name.key != ours.name.key:
            raise RefusedError(f"{self._remote.url} holds {theirs.name}, not {ours.name}.")
        if ours is not None and theirs.timezone != ours.timezone:
            message = f"{theirs.name} has the time zone {theirs.timezone} there and {ours.timezone} here."
            raise RefusedError(
                message, hint="The zone is fixed when a persona is made; one of the two is another persona."
            )

    # -- taking in ---------------------------------------------------------------------------

    def _take(self, incoming: Repository, made: list[Plan]) -> set[str]:
        """Bring the plans' results into the repository; names of branches that had not moved meanwhile."""
        repository = self._repository
        if not made:
            return set()
        with repository.locked():
            here = repository.refs.heads()
            mine = [plan for plan in made if here.get(plan.branch) == plan.tips.ours]
            for plan in mine:
                incoming.store(plan.stage, _nobody)
            purging = [plan for plan in mine if plan.branch != MAIN and plan.purges]
            for plan in purging:
                assert plan.tips.ours is not None
                journal = erase.Journal.load(repository, plan.branch)
                journal.old.add(plan.tips.ours)
                journal.save()
            try:
                with repository.strays() as note:
                    adopt(repository, incoming, _wanted(mine), note)
                    self._move(mine)
            except StaleRefError:
                return set()
            for plan in purging:
                self._purge(plan)
            self._note_raw(mine)
            repository.tidy_refs()
        self._tell(mine)
        return {plan.branch for plan in mine}

    def _move(self, made: list[Plan]) -> None:
        """Move our branches and what we know of theirs, all at once.

        Raises:
            StaleRefError: a push was faster.
        """
        lines = []
        seen = self._repository.refs.all(self._tracking)
        for plan in made:
            name = plan.branch
            if plan.rescue is not None:
                lines.append(f"update {self._rescue}{name} {plan.rescue.hex()}")
                continue
            if plan.target is not None and plan.target != plan.tips.ours:
                lines.append(_update(HEADS + name, plan.target, plan.tips.ours))
            if plan.theirs is not None and plan.theirs != seen.get(self._tracking + name):
                lines.append(f"update {self._tracking}{name} {plan.theirs.hex()}")
        if not lines:
            return
        try:
            host.git(
                self._repository.folder,
                "update-ref",
                "--stdin",
                data="".join(f"{line}\n" for line in lines).encode(),
            )
        except CorruptError:
            here = self._repository.refs.heads()
            if all(here.get(plan.branch) == plan.tips.ours for plan in made):
                raise
            raise StaleRefError(HEADS) from None

    def _purge(self, plan: Plan) -> None:
        outcome = erase.purge_epoch(self._repository, plan.branch)
        if plan.released:
            self._report.places += outcome.places
        self._branch(plan.branch).notes += outcome.notes

    def _forget_raw(self, names: set[str]) -> None:
        """These branches have moved there: what they hold must be looked at again."""
        if names and not self._report.dry_run:
            self._raw = {name: oid for name, oid in self._raw.items() if name not in names}
            with self._repository.locked():
                remotes.save_seen(self._repository, self._remote.name, self._raw)

    def _note_raw(self, made: list[Plan]) -> None:
        for plan in made:
            if plan.holds and plan.rescue is None:
                assert plan.tips.raw is not None
                self._raw[plan.branch] = plan.tips.raw
            else:
                self._raw.pop(plan.branch, None)
        remotes.save_seen(self._repository, self._remote.name, self._raw)

    # -- pushing -----------------------------------------------------------------------------

    def _push(self, incoming: Repository, made: list[Plan]) -> set[str]:
        """Push what the plans say; the branches that there was anything to push of."""
        updates: dict[str, Oid] = {}
        lease: dict[str, Oid] = {}
        for plan in made:
            name, raw = plan.branch, plan.tips.raw
            if name in self._refused and self._refused[name] == raw:
                continue
            differs = raw is not None and plan.rescue is None and plan.theirs != raw
            if self._rewrite_remote and differs and name not in self._forced:
                assert plan.target is not None
                assert raw is not None
                updates[HEADS + name], lease[HEADS + name] = plan.target, raw
                self._forced.add(name)
            elif plan.push is not None:
                updates[HEADS + name] = plan.push
            else:
                continue
            asked = plan.asked or ([raw] if raw and differs and plan.holds else [])
            if asked:
                self._asked.setdefault(name, []).extend(asked)
        by_ref = {HEADS + plan.branch: plan for plan in made}
        # A name may stand in two epochs. Once one of them is released, the other would be refused.
        for last in (False, True):
            part = {ref: oid for ref, oid in updates.items() if bool(by_ref[ref].telling) is last}
            if part:
                self._send(incoming, by_ref, part, _only(lease, part))
        return {ref[len(HEADS) :] for ref in updates}

    def _send(
        self,
        incoming: Repository,
        plans_of: Mapping[str, Plan],
        updates: Mapping[str, Oid],
        lease: Mapping[str, Oid],
    ) -> None:
        """Push; a hook refuses a push as a whole, so halves of a refused one are pushed again."""
        reply = self._wire.push(incoming.folder, updates, lease)
        self._hooked = self._hooked or any(line.startswith("gitmem:") for line in reply.said)
        there = self._wire.refs()
        refused = [r.ref for r in reply.refs if not r.ok and there.get(r.ref) == plans_of[r.ref].tips.raw]
        if len(updates) > 1 and refused:
            self._settle(replace(reply, refs=tuple(r for r in reply.refs if r.ok)), plans_of, there)
            middle = (len(refused) + 1) // 2
            for half in (refused[:middle], refused[middle:]):
                if half:
                    self._send(incoming, plans_of, {ref: updates[ref] for ref in half}, _only(lease, half))
            return
        self._settle(reply, plans_of, there)

    def _settle(self, reply: Reply, plans_of: Mapping[str, Plan], there: Mapping[str, Oid]) -> None:
        for ref, ok, reason in reply.refs:
            plan = plans_of[ref]
            branch = self._branch(plan.branch)
            if ok:
                branch.sent += plan.sent
                branch.stopped = ""
                if plan.push != plan.target and there.get(ref) == plan.push:
                    self._note_unpurged(plan)
                continue
            if there.get(ref) != plan.tips.raw:
                continue  # someone was faster; the next round sees what they did
            self._refused[plan.branch] = plan.tips.raw
            said = " ".join(line for line in reply.said if line)
            branch.stopped = (
                f"the remote refused the push {reason}: {said}"
                if said
                else f"the remote refused the push {reason}."
            )

    def _note_unpurged(self, plan: Plan) -> None:
        """The remote has our commits, and did not purge: it need not be fetched to know that."""
        assert plan.push is not None
        assert plan.target is not None
        name = plan.branch
        with self._repository.locked():
            if plan.target in self._repository.refs.all(HEADS).values():
                line = f"update {self._tracking}{name} {plan.target.hex()}\n"
                host.git(self._repository.folder, "update-ref", "--stdin", data=line.encode())
                if plan.holds:
                    self._raw[name] = self._own[name] = plan.push
                remotes.save_seen(self._repository, self._remote.name, self._raw)

    def _drop_rescues(self) -> None:
        """A branch that is in order again needs no rescue ref."""
        rescued = {ref: ref[len(self._rescue) :] for ref in self._repository.refs.all(self._rescue)}
        calm = [ref for ref, name in rescued.items() if not self._branch(name).stopped]
        if calm and not self._report.dry_run:
            with self._repository.locked():
                for ref in calm:
                    self._repository.refs.delete(ref)

    # -- telling -----------------------------------------------------------------------------

    def _tell(self, made: list[Plan]) -> None:
        for plan in made:
            branch = self._branch(plan.branch)
            branch.taken += plan.taken
            branch.released += plan.released
            if self._report.dry_run:
                branch.sent += plan.sent if plan.push is not None else 0
            if plan.rescue is not None:
                branch.stopped = self._rewritten(plan)
            if plan.tips.theirs is None and plan.tips.seen is not None:
                branch.notes.append("it had vanished there, and is pushed again.")
            if plan.replayed is not None:
                branch.joined = True
                branch.renamed |= plan.replayed.renamed
                branch.dropped |= plan.replayed.dropped
                branch.conflicts += [c for c in plan.replayed.conflicts if c not in branch.conflicts]

    def _rewritten(self, plan: Plan) -> str:
        name = plan.branch
        where = self._repository.folder
        return (
            f"its history was rewritten there without a release. Nothing was changed here; what is there now "
            f"is kept as {self._rescue}{name}. To join both: git --git-dir '{where}' update-ref -d "
            f"{self._tracking}{name}, then gitmem sync."
        )

    def _look_for_released(self) -> None:
        """Ask the remote for what was released, and say where it still is."""
        awaited = self._may_move()
        for name in sorted(self._raw):
            again = f"gitmem sync {self._report.persona}"
            if name in awaited and self._hooked:
                what, remedy = "its purge is under way there; sync again", again
            else:
                what = "still served: the branch there holds released text; no gitmem hooks ran there"
                what += ", or their purge has not ended" if name in awaited else ""
                remedy = f"{again} --rewrite-remote, then in its folder: {_GC}"
            self._report.places.append(Place(f"{self._remote.url} {name}", Reach.UNREACHED, what, remedy))
        asked = {name: oids for name, oids in self._asked.items() if name not in self._raw}
        ours = self._repository
        oids = [oid for found in asked.values() for oid in found if oid not in ours]
        if not oids or self._report.dry_run:
            return
        try:
            with Incoming(ours, borrow=False) as empty:
                held = self._wire.holds(empty.folder, oids)
        except GitmemError as fault:
            for name in asked:
                self._report.places.append(
                    Place(f"{self._remote.url} {name}", Reach.UNREACHED, f"unknown: {fault.message}", _GC)
                )
            return
        for name, mine in asked.items():
            self._report.places.append(
                _verdict(f"{self._remote.url} {name}", [held[oid] for oid in mine if oid in held])
            )


def _verdict(where: str, held: list[bool | None]) -> Place:
    if any(answer is True for answer in held):
        what = f"still served: {held.count(True)} of {len(held)} released objects are given by their id"
        return Place(where, Reach.UNREACHED, what, f"in its folder, as its user: {_GC}")
    if any(answer is None for answer in held):
        return Place(
            where,
            Reach.UNREACHED,
            "unknown: its server does not tell by id",
            f"in its folder, as its user: {_GC}",
        )
    return Place(where, Reach.PURGED, f"gone: {len(held)} objects asked for by id")


def _only(lease: Mapping[str, Oid], refs: Iterable[str]) -> dict[str, Oid]:
    return {ref: lease[ref] for ref in refs if ref in lease}


def _update(ref: str, new: Oid, old: Oid | None) -> str:
    return f"create {ref} {new.hex()}" if old is None else f"update {ref} {new.hex()} {old.hex()}"


def _wanted(made: Iterable[Plan]) -> list[Oid]:
    found = (tip for plan in made for tip in ((plan.rescue,) if plan.rescue else (plan.target, plan.theirs)))
    return [oid for oid in dict.fromkeys(found) if oid is not None]


def _nobody(line: str) -> None:
    """Nobody needs to know of objects that vanish anyway."""
    del line


def adopt(
    repository: Repository, incoming: Repository, tips: Iterable[Oid], note: Callable[[str], None]
) -> None:
    """Bring all that `tips` lead to from a borrowing repository into its own. `note` as in `strays`."""
    ours = set(repository.refs.all().values())
    lines = [oid.hex() for oid in tips if oid not in ours]
    if not lines:
        return
    asked = "".join(f"{line}\n" for line in [*lines, *("^" + oid.hex() for oid in ours)]).encode()
    out = host.git(incoming.folder, "rev-list", "--objects", "--no-object-names", "--stdin", data=asked)
    ids = [bytes.fromhex(line.decode()) for line in out.split()]
    if len(ids) > _FEW:
        pack.repack(incoming.folder, ids, None, note, into=f"{repository.objects}/pack")
        return
    stage = Stage(incoming.reader())
    for oid in ids:
        stage.new[oid] = incoming.read(oid)
        note(oid.hex())
    repository.store(stage, note)
