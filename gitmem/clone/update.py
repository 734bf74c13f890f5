"""`gitmem sync DIR`: a working copy takes what is new on the other side, and forgets what was released.

Everything fetched first stands in a repository of its own and is purged there; only then is
anything of it seen by a ref here. Nothing is pushed: `git push` does that.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from gitmem import host
from gitmem.clone.folder import ORIGIN, TRACKING, WorkingCopy, git_in, open_copy, quoted, reconnect
from gitmem.clone.persona import check_persona
from gitmem.clone.plan import Plan, Roots, StopError, Tips, make_plan, map_commits, victims_of
from gitmem.clone.report import BranchReport, CopyReport
from gitmem.errors import ConflictError, CorruptError, UnavailableError
from gitmem.report import Place, Reach
from gitmem.store import erase, worktrees
from gitmem.store import objects as git
from gitmem.store.objects import Oid
from gitmem.store.pack import PackWriter, pack_paths
from gitmem.store.purge import Victims
from gitmem.store.refs import HEADS, StaleRefError
from gitmem.store.repository import MAIN, Repository
from gitmem.store.trees import differences, find_file
from gitmem.store.wire import Incoming, Wire, split_url
from gitmem.store.worktrees import Checkout, Worktree
from gitmem.tracepath import is_epoch, natural_order

DONE = "gitmem.released"
_LOG = ("-c", "user.name=gitmem", "-c", "user.email=gitmem@localhost.invalid")
_ZERO = "0" * 40


def sync(folder: str | Path, *, token: str | None = None, lock_seconds: float = 60) -> CopyReport:
    """Bring a working copy up to date; what was done.

    New commits of the other side are taken, unpushed ones are put on top of them, and released
    leaves vanish from files, indexes, history, stash and reflogs. Other uncommitted work stays.
    A branch where that is not possible is left as it is, and the report says why.

    Raises:
        NotFoundError: there is no working copy at `folder`.
        RefusedError: it is shallow or partial, or the other side holds another persona.
        UnavailableError: the other side cannot be reached, or another command is at work here.
    """
    copy = open_copy(folder, lock_seconds)
    try:
        with copy.repository.locked():
            reconnect(copy)
            with received(copy, wire_to(copy.url, token)) as update:
                update.bring(update.names())
                return update.report
    finally:
        copy.repository.close()


def wire_to(url: str, token: str | None = None) -> Wire:
    """The way to a URL; a token in it goes before the one given."""
    address = split_url(url, token)
    return Wire(address.url, address.token or token, address.user)


@contextlib.contextmanager
def received(copy: WorkingCopy, wire: Wire) -> Iterator[Update]:
    """What the other side has, fetched but not yet part of the copy. Call under the lock."""
    with Incoming(copy.repository) as incoming:
        try:
            wire.fetch(incoming.folder, ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
        except UnavailableError as fault:
            if "token" not in fault.hint:
                raise
            hint = "Set GITMEM_TOKEN to a token that may read and write there."
            raise UnavailableError(fault.message, hint=hint) from None
        update = Update(copy, incoming, wire.url)
        update.check_persona()
        yield update


class Update:
    """What the other side has, and how the copy comes to have it."""

    def __init__(self, copy: WorkingCopy, incoming: Repository, url: str) -> None:
        self.copy = copy
        self.report = CopyReport(copy.folder, url)
        self._repository = copy.repository
        self._incoming = incoming
        self._reader = incoming.reader()
        theirs = incoming.refs.all()
        self.heads = {n.removeprefix(HEADS): oid for n, oid in theirs.items() if n.startswith(HEADS)}
        self._tags = {name: oid for name, oid in theirs.items() if name.startswith("refs/tags/")}
        self._roots = Roots(self._read)
        self._known: dict[Oid, set[str]] | None = None
        self._done = _load_done(self._repository)

    def check_persona(self) -> None:
        """Raise `RefusedError` where the other side is not the same persona any more."""
        found = check_persona(self.copy, self._incoming, self.report.remote, self._roots)
        self.report.persona = str(found.name) if found is not None else ""

    def _read(self, oid: Oid) -> tuple[git.ObjectType, bytes]:
        """An object that was fetched, or that the copy has."""
        return self._reader(oid)

    def names(self) -> list[str]:
        """Branches of either side, in natural order, `main` first."""
        refs = self._repository.refs.all()
        here = {
            name.removeprefix(start) for name in refs for start in (HEADS, TRACKING) if name.startswith(start)
        }
        return sorted(here | self.heads.keys(), key=lambda name: (name != MAIN, natural_order(name)))

    def bring(self, names: Iterable[str]) -> None:
        """Bring branches up to date, each wholly or not at all."""
        plans = [plan for name in names if (plan := self._plan(name)) is not None]
        clean = all(plan.is_clean for plan in plans)
        if clean and plans:
            self._take_packs()
        # Nothing is purged before every branch has its new commits: what no ref leads to yet might
        # be taken for something that quotes a released leaf.
        moved = [step for plan in plans if (step := self._carry_out(plan, stored=clean)) is not None]
        if clean and plans:
            self._take_tags(plans)
        for step in moved:
            self._finish(step)
        self.report.branches.sort(key=lambda branch: (branch.name != MAIN, natural_order(branch.name)))

    # -- what is to be done ------------------------------------------------------------------

    def _tips(self, name: str) -> Tips:
        refs = self._repository.refs
        places = [each.folder for each in self.copy.worktrees() if each.branch == HEADS + name]
        folder = next(iter(places), self.copy.folder)
        return Tips(self.heads.get(name), refs.head(name), refs.read(TRACKING + name), folder, bool(places))

    def _plan(self, name: str) -> Plan | None:
        tips = self._tips(name)
        if self._is_done(name, tips):
            return None
        victims = victims_of(self._read, [tips.remote, tips.tracking]) if is_epoch(name) else Victims()
        known = self._family(name, tips) if victims else {}
        stashes = [oid for oid, places in known.items() if any(p.endswith("refs/stash") for p in places)]
        try:
            return make_plan(name, tips, victims, self._read, known, stashes)
        except StopError as stop:
            self._stopped(name, stop)
            return None

    def _stopped(self, name: str, stop: StopError) -> None:
        self.report.branches.append(BranchReport(name, stopped=stop.why, remedy=stop.remedy))

    def _family(self, name: str, tips: Tips) -> dict[Oid, set[str]]:
        """Commits known here that belong to an epoch, and the files or refs that name them."""
        own = self._roots_of(tips)
        places = (f"logs/{HEADS}{name}", f"logs/{TRACKING}{name}")
        return {
            oid: where
            for oid, where in self._all_known().items()
            if own & self._roots.of(oid) or any(place.endswith(places) for place in where)
        }

    def _roots_of(self, tips: Tips) -> frozenset[Oid]:
        own = [tip for tip in (tips.remote, tips.local, tips.tracking) if tip is not None]
        return frozenset().union(*(self._roots.of(tip) for tip in own))

    def _is_done(self, name: str, tips: Tips) -> bool:
        """Whether a branch is as a sync that ended well left it, and the other side's is still the same."""
        done = self._done.get(name)
        tip = tips.remote
        same = tip is not None and tip == tips.tracking and tips.local in (None, tip)
        return bool(same and done and tip and done.tip == tip.hex() and not self._is_pending(name))

    def _is_pending(self, name: str) -> bool:
        return name in erase.pending(self._repository)

    def _all_known(self) -> dict[Oid, set[str]]:
        """Every commit that a ref, reflog or head of the copy names, as far as it is there."""
        if self._known is None:
            named: dict[Oid, set[str]] = {}
            for ref, oid in self._repository.refs.all().items():
                named.setdefault(self._peeled(oid), set()).add(ref)
            for path, ids in worktrees.known_ids(self.copy.gitdir).items():
                for oid in ids:
                    named.setdefault(oid, set()).add(path)
            self._known = {oid: where for oid, where in named.items() if self._is_commit(oid)}
        return self._known

    def _peeled(self, oid: Oid) -> Oid:
        kind, data = self._read(oid)
        while kind == "tag":
            oid = git.tag_target(data)
            kind, data = self._read(oid)
        return oid

    def _is_commit(self, oid: Oid) -> bool:
        try:
            return oid in self._incoming and self._read(oid)[0] == "commit"
        except CorruptError:
            return False

    # -- doing it ----------------------------------------------------------------------------

    def _carry_out(self, plan: Plan, *, stored: bool) -> _Moved | None:
        """Let branch and files be what the plan says; None where that is not possible."""
        try:
            return self._change(plan, stored=stored)
        except StopError as stop:
            self._stopped(plan.name, stop)
        except CorruptError:
            raise
        except (ConflictError, UnavailableError) as fault:
            self._stopped(plan.name, StopError(fault.message.removesuffix("."), fault.hint))
        return None

    def _change(self, plan: Plan, *, stored: bool) -> _Moved:
        report = BranchReport(plan.name, plan.taken, plan.waiting)
        purging = self._is_purge(plan)
        checkouts = self._checkouts(plan, purging=purging)
        if purging:
            journal = erase.Journal.load(self._repository, plan.name)
            journal.old = self._held(journal.old | plan.mapped.keys())
            journal.staged |= {oid for each in checkouts for oid in each.staged_victims()}
            journal.save()
        self._store(plan, stored=stored)
        for each in checkouts:
            each.carry_out()
        report.moved = plan.target != plan.tips.local
        self._move(plan)
        if plan.mapped:
            worktrees.map_ids(self.copy.gitdir, plan.mapped, plan.hushed)
        return _Moved(plan, report, purging)

    def _finish(self, moved: _Moved) -> None:
        """Forget what was released, and say what became of the branch."""
        plan, report, purging = moved
        new = self._new(plan)
        if purging:
            report.released = self._purge(plan)
        elif plan.tracking is not None:
            self._note_done(plan)
        if plan.victims:
            self.report.places += self._leftovers(plan, new)
        self._tell(plan)
        if report.is_news:
            self.report.branches.append(report)

    def _is_purge(self, plan: Plan) -> bool:
        """Whether there is anything here that must go, or might be."""
        if not plan.victims:
            return False
        if self._is_pending(plan.name) or self._held(plan.mapped):
            return True
        was_here = plan.tips.local is not None or plan.tips.tracking is not None
        return was_here and bool(self._new(plan))

    def _held(self, oids: Iterable[Oid]) -> set[Oid]:
        """Those that stand in the clone itself, not only in what was fetched."""
        return {oid for oid in oids if oid in self._repository}

    def _new(self, plan: Plan) -> list[str]:
        """Leaves that this clone was not rid of before."""
        done = self._done.get(plan.name)
        return sorted(_names(plan.victims) - set(done.leaves if done else ()))

    def _checkouts(self, plan: Plan, *, purging: bool) -> list[Checkout]:
        """Worktrees that must show something else. Raises `StopError` where one cannot."""
        found = []
        changing = purging or plan.target != plan.tips.local
        for each in self.copy.worktrees():
            old = self._head(each)
            if old is None:
                continue
            own = each.branch == HEADS + plan.name
            new = (plan.target if own else plan.mapped.get(old)) or old
            if not own and (each.branch or not changing) and new == old:
                continue
            if own or self._roots.of(old) & self._roots_of(plan.tips) or new != old:
                if changing and (command := worktrees.in_progress(each)):
                    raise _unfinished(each, command)
                checkout = self._checkout(plan, each, old, new)
                if checkout.is_needed():
                    self._check_free(plan, checkout)
                    found.append(checkout)
        return found

    def _head(self, worktree: Worktree) -> Oid | None:
        if worktree.branch:
            return self._repository.refs.read(worktree.branch)
        return worktree.detached

    def _checkout(self, plan: Plan, worktree: Worktree, old: Oid, new: Oid) -> Checkout:
        read = plan.rewrite.stage.read
        before, after = (git.Commit.parse(read(tip)[1]).tree for tip in (old, new))
        new_leaves = set(self._new(plan))
        both = (*plan.victims.released, *plan.victims.forgotten)
        paths = [path for leaf in both if leaf.path in new_leaves for path in (leaf.path, leaf.sidecar)]
        victims = {
            path: (find_file(before, path, read), find_file(after, path, read))
            for path in map(os.fsencode, dict.fromkeys(paths))
        }
        return Checkout(worktree, old, new, differences(before, after, read), victims)

    def _check_free(self, plan: Plan, checkout: Checkout) -> None:
        if command := worktrees.in_progress(checkout.worktree):
            raise _unfinished(checkout.worktree, command)
        try:
            taken = checkout.in_the_way()
        except CorruptError:
            raise
        except UnavailableError as fault:
            raise StopError(fault.message, fault.hint) from None
        if taken:
            names = [path.decode("utf-8", "backslashreplace") for path in taken]
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
            raise StopError(
                f"{shown} in {checkout.worktree.folder} has uncommitted changes, and so has {plan.name}",
                f"Commit or stash it, then run {self._again}.",
            )

    @property
    def _again(self) -> str:
        return quoted("gitmem", "sync", self.copy.folder)

    def _take_packs(self) -> None:
        """Everything fetched is fit to be kept as it came."""
        target = f"{self._repository.objects}/pack"
        for base in pack_paths(f"{self._incoming.objects}/pack"):
            final = f"{target}/{os.path.basename(base)}"
            for ending in (".pack", ".idx"):
                with contextlib.suppress(FileExistsError):
                    os.link(base + ending, final + ending)
        host.sync_folder(target)

    def _store(self, plan: Plan, *, stored: bool) -> None:
        """Bring to disk what the new tips need and the copy has not yet."""
        stage = plan.rewrite.stage
        new = {} if stored and not stage.new else dict(stage.new)
        if not stored and plan.tracking is not None:
            seen: set[Oid] = set()
            for tip in (plan.tips.tracking, plan.tips.local):
                if tip is not None:
                    git.reachable([tip], self._repository.reader(), seen)
            for item in git.items([plan.tracking], stage.read, seen):
                new[item.oid] = stage.read(item.oid)
        missing = {oid: value for oid, value in new.items() if oid not in self._repository}
        if not missing:
            return
        writer = PackWriter(f"{self._repository.objects}/pack")
        for oid, (kind, data) in missing.items():
            writer.add(kind, data, oid=oid)
        with self._repository.strays() as note:
            writer.finish(note)

    def _move(self, plan: Plan) -> None:
        """Move refs: the old history's to the new one first, then the branch and the tracking ref onward."""
        refs = self._repository.refs
        for ref, oid in refs.all().items():
            if oid in plan.mapped:
                # Without a line in its reflog, which is mapped as well: a stash is its reflog.
                try:
                    refs.update(ref, plan.mapped[oid], oid)
                except StaleRefError:
                    raise self._overtaken(ref) from None
        for ref, new, old in (
            (HEADS + plan.name, plan.target, plan.tips.local),
            (TRACKING + plan.name, plan.tracking, plan.tips.tracking),
        ):
            if new is not None:
                self._set(ref, new, None if old is None else plan.new_of(old))

    def _set(self, ref: str, new: Oid, old: Oid | None) -> None:
        """Move a ref, and note it in its reflog, as git does."""
        if new == old:
            return
        holder = next((each.gitdir for each in self.copy.worktrees() if each.branch == ref), self.copy.gitdir)
        before = _ZERO if old is None else old.hex()
        try:
            host.git(holder, *_LOG, "update-ref", "--no-deref", "-m", "gitmem sync", ref, new.hex(), before)
        except CorruptError:
            raise self._overtaken(ref) from None

    def _overtaken(self, ref: str) -> ConflictError:
        return ConflictError(f"{ref} was moved by another command meanwhile.", hint=f"Run {self._again}.")

    def _take_tags(self, plans: Iterable[Plan]) -> None:
        here = self._repository.refs.all("refs/tags/")
        for name, oid in self._tags.items():
            if name not in here and oid in self._repository and self._is_fit(oid, plans):
                self._set(name, oid, None)

    def _is_fit(self, oid: Oid, plans: Iterable[Plan]) -> bool:
        """Whether what a tag leads to holds nothing that was released."""
        commit = self._peeled(oid)
        if not self._is_commit(commit):
            return True
        own = [plan for plan in plans if plan.victims and self._roots.of(commit) & self._roots_of(plan.tips)]
        return not any(map_commits(plan.rewrite, [commit], []) for plan in own)

    # -- forgetting --------------------------------------------------------------------------

    def _purge(self, plan: Plan) -> list[str]:
        """Delete what only the old history held; the leaves that this clone is rid of now."""
        for name in worktrees.drop_messages(self.copy.gitdir):
            self.report.notes.append(f".git/{name} was emptied: it holds copies of files.")
        held = bool(self._held(plan.mapped))
        self._repository.bump_generation()
        outcome = erase.purge_epoch(self._repository, plan.name, ref=TRACKING + plan.name)
        self._incoming.close()
        self._reader = self._incoming.reader()
        new = self._new(plan)
        places = [self._place(place) for place in outcome.places]
        gone = all(place.reach is not Reach.UNREACHED for place in places)
        self.report.notes += outcome.notes
        if held or outcome.deleted or not gone:
            self.report.places += places
        if gone:
            self._note_done(plan)
        return new if held or outcome.deleted else []

    def _note_done(self, plan: Plan) -> None:
        assert plan.tracking is not None
        done = Done(plan.tracking.hex(), tuple(sorted(_names(plan.victims))))
        if self._done.get(plan.name) != done:
            self._done[plan.name] = done
            _save_done(self._repository, self._done)

    def _place(self, place: Place) -> Place:
        if place.command.startswith("gitmem doctor"):
            return replace(place, command=self._again)
        return place

    def _leftovers(self, plan: Plan, new: Iterable[str]) -> list[Place]:
        """Files that may hold a released text and may as well be a person's own: they are not touched."""
        names = [path.partition("/")[2] for path in new]
        found = []
        for each in self.copy.worktrees():
            if each.branch == HEADS + plan.name:
                paths = [*worktrees.leftovers(each, names), *self._returned(plan, each)]
                what = "it is called like a released leaf, and may hold its text"
                found += [Place(path, Reach.UNREACHED, what, quoted("rm", path)) for path in paths]
        return found

    def _returned(self, plan: Plan, worktree: Worktree) -> list[str]:
        """Files under the names of released leaves: an editor may have saved one again."""
        paths = [f"{worktree.folder}/{leaf.path}" for leaf in plan.victims.released]
        return sorted(path for path in paths if os.path.lexists(path))

    def _tell(self, plan: Plan) -> None:
        name = plan.name
        self.report.notes += plan.notes
        if not plan.is_clean:
            what = f"it still serves released leaves of {name}: it has no hooks of gitmem"
            command = f"gitmem sync {self.report.persona} --rewrite-remote (in a home that has this remote)"
            self.report.places.append(Place(f"remote {self.report.remote}", Reach.UNREACHED, what, command))
        if plan.local_releases:
            count = plan.local_releases
            what = f"{count} of its leaves are released here only; their text stays until that is pushed"
            command = f"{git_in(plan.tips.folder, 'push', ORIGIN, name)} && {self._again}"
            self.report.places.append(Place(f"epoch {name} of this clone", Reach.UNREACHED, what, command))
        if plan.tips.remote is None and plan.tips.tracking is not None:
            self.report.notes.append(f"{name} is no longer on the other side; it stays here.")


def _unfinished(worktree: Worktree, command: str) -> StopError:
    return StopError(
        f"something was begun in {worktree.folder} and not ended", f"End it there first: {command}."
    )


def _names(victims: Victims) -> set[str]:
    return {leaf.path for leaf in victims.released} | {leaf.path for leaf in victims.forgotten}


class _Moved(NamedTuple):
    """A branch that has its new commits."""

    plan: Plan
    report: BranchReport
    purging: bool


class Done(NamedTuple):
    """A branch that this clone is in step with. Derived: without it, it is only looked at again."""

    tip: str
    """Id of its tracking ref."""
    leaves: tuple[str, ...]
    """Leaves that were purged from the clone."""


def _load_done(repository: Repository) -> dict[str, Done]:
    try:
        raw = json.loads(host.read_bytes(f"{repository.folder}/{DONE}") or b"{}")
        return {str(name): Done(str(tip), tuple(map(str, leaves))) for name, (tip, leaves) in raw.items()}
    except (ValueError, AttributeError, TypeError):
        return {}


def _save_done(repository: Repository, done: dict[str, Done]) -> None:
    host.write_durable(f"{repository.folder}/{DONE}", json.dumps(done, sort_keys=True).encode())
