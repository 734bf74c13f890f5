"""Checks of a home: what is wrong, what can be put right safely, and a proof that the loop works."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gitmem import host, times
from gitmem import sidecar as sidecars
from gitmem.errors import CorruptError, GitmemError
from gitmem.home import Home
from gitmem.leaves import look
from gitmem.maintain import sweep
from gitmem.memory import Memory
from gitmem.places import wiki_folder
from gitmem.receive import install
from gitmem.states import State
from gitmem.store import erase, pack, verify
from gitmem.store import objects as git
from gitmem.store.objects import Oid
from gitmem.store.purge import Rewrite, find_victims
from gitmem.store.quiet import quiet
from gitmem.store.repository import Repository, View
from gitmem.tracepath import KINDS, LeafName

_SCRATCH = "gitmem-doctor"
_OLD = timedelta(days=1).total_seconds()
_LONG = timedelta(minutes=1).total_seconds()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    check: str
    where: str
    what: str
    fixable: bool = False
    fixed: bool = False
    remedy: str = ""

    def as_dict(self) -> dict[str, str | bool]:
        out: dict[str, str | bool] = {"check": self.check, "where": self.where, "what": self.what}
        out |= {"fixable": self.fixable, "fixed": self.fixed}
        return out | ({"remedy": self.remedy} if self.remedy else {})


def check_home(home: Home, *, fix: bool = False) -> list[Finding]:
    """Check every persona of a home. With `fix`, what is safe to repair is repaired."""
    found: list[Finding] = []
    if not host.is_private(home.path):
        what = "other users of this machine may enter the home"
        found.append(Finding("mode", str(home.path), what, remedy=f"chmod 700 {home.path}"))
    found += _local_state(home)
    try:
        personas = home.personas()
    except GitmemError as fault:
        return [*found, Finding("home", str(home.path), fault.message, remedy=fault.hint)]
    for persona in personas:
        found += check_memory(home.persona(persona), fix=fix)
    return found


def _local_state(home: Home) -> Iterator[Finding]:
    """The short local list can be read: without it a release cannot name exports."""
    try:
        home.local.exports("")
    except GitmemError as fault:
        yield Finding("state", str(home.path), fault.message, remedy=fault.hint)


def check_memory(memory: Memory, *, fix: bool = False) -> list[Finding]:
    """Check one persona's repository, its sidecars and tombstones, and its wiki."""
    repository = memory.repository
    found = [*_leavings(repository, fix=fix), *_locks(repository), *_hooks(repository, fix=fix)]
    try:
        found += _connectivity(repository)
        if not any(finding.check == "git" for finding in found):
            found += _sidecars(memory)
            found += _tombstones(repository, fix=fix)
            found += _returned(repository)
        memory.refresh()
    except GitmemError as fault:
        found.append(Finding("git", repository.folder, fault.message, remedy=fault.hint))
    wiki = wiki_folder(Path(repository.folder))
    if wiki.is_dir():
        found += _connectivity(Repository(str(wiki)))
    return found


def _connectivity(repository: Repository) -> Iterator[Finding]:
    """Everything the branches lead to is there and is what its id says (git's own check)."""
    try:
        host.git(repository.folder, "fsck", "--full", "--no-dangling", "--no-progress", "--no-reflogs")
    except CorruptError as fault:
        remedy = "Restore the named objects from a clone or a backup: git fetch into this repository."
        yield Finding("git", repository.folder, fault.message, remedy=remedy)


def _leavings(repository: Repository, *, fix: bool) -> Iterator[Finding]:
    """What killed processes left: journals, noted strays, unfinished files."""
    folder = repository.folder
    found = [
        ("journal", folder, f"the purge of {epoch} has not ended") for epoch in erase.pending(repository)
    ]
    drafts = [*pack.temporary_files(f"{repository.objects}/pack"), *_unfinished(repository)]
    # A young file may be that of a git command at work; gitmem's own are nobody's while this runs.
    temporary = [
        path for path in drafts if "_gitmem_" in os.path.basename(path) or host.age_or_zero(path) > _LONG
    ]
    found += [("temporary", path, "an unfinished file") for path in temporary]
    fixed = fix and (bool(found) or bool(repository.stray_ids())) and _clear(repository, temporary)
    for check, where, what in found:
        yield Finding(check, where, what, True, fixed, "gitmem doctor --fix, when no git gc is running")


def _clear(repository: Repository, temporary: list[str]) -> bool:
    """Put right what a kill left; whether that was possible now."""
    with repository.locked(), quiet(repository.folder, 5) as running:
        if running:
            return False
        sweep(repository)
        for path in temporary:
            host.remove(path)
        return not erase.pending(repository)


def _locks(repository: Repository) -> Iterator[Finding]:
    """Locks and push data that somebody else seems to have left; never removed by gitmem."""
    for path in [*repository.refs.stale_locks(), f"{repository.folder}/packed-refs.lock"]:
        if (seconds := host.age_or_zero(path)) > _LONG:
            remedy = "If no git command is running on the repository, remove that file."
            yield Finding("lock", path, f"a lock of {int(seconds)} seconds", remedy=remedy)
    for path in pack.unindexed(f"{repository.objects}/pack"):
        if host.age_or_zero(path) > _LONG:
            remedy = f"git index-pack '{path}' shows whether it is whole; then keep its index or remove it."
            yield Finding("temporary", path, "a pack without an index: git does not see it", remedy=remedy)
    for name in host.list_folder(repository.objects):
        path = f"{repository.objects}/{name}"
        if name.startswith(("tmp_objdir", "incoming")) and host.age_or_zero(path) > _OLD:
            yield Finding("temporary", path, "data of a push that never ended", remedy=f"rm -r '{path}'")


def _hooks(repository: Repository, *, fix: bool) -> Iterator[Finding]:
    """Pushes are checked: the hooks are there and run."""
    bad = [hook for hook in install.status(repository.folder) if hook.state != "ready"]
    if not bad:
        return
    remedy = f"gitmem hooks install {repository.folder}"
    fixed = False
    if fix:
        with contextlib.suppress(GitmemError):
            install.install(repository.folder)
            fixed = all(hook.state == "ready" for hook in install.status(repository.folder))
    for hook in bad:
        what = f"{hook.name} is {hook.state}: {hook.detail}"
        yield Finding("hooks", repository.folder, what, True, fixed, remedy)


def _unfinished(repository: Repository) -> list[str]:
    paths = [f"{repository.objects}/{name}" for name in host.list_folder(repository.objects)]
    return [path for path in paths if os.path.basename(path).startswith("tmp_obj") and os.path.isfile(path)]


def _sidecars(memory: Memory) -> Iterator[Finding]:
    """Each sidecar parses, and says what the branch and the history bear out."""
    for epoch in memory.repository.epochs():
        view = memory.repository.view(epoch)
        assert view is not None
        needed: dict[Oid, list[str]] = {}
        for leaf in (leaf for kind in KINDS for leaf in view.sidecar_ids(kind)):
            path = memory.path(epoch, leaf)
            try:
                what = _sidecar_fault(memory.repository, view, leaf, needed, path)
            except CorruptError as fault:
                what = fault.message
            if what:
                yield Finding(
                    "sidecar", path, what, remedy="Correct the sidecar with git, or release the leaf."
                )
        yield from _missing_texts(memory.repository, view, needed)


def _missing_texts(repository: Repository, view: View, needed: dict[Oid, list[str]]) -> Iterator[Finding]:
    """Full texts that sidecars name and the epoch's history does not hold."""
    if not needed:
        return
    remedy = "Restore it from a clone or a backup; gitmem never makes text up."
    for oid in needed.keys() - git.reachable([view.tip], repository.reader()):
        for path in needed[oid]:
            yield Finding("sidecar", path, f"its full text {oid.hex()} is not in the history", remedy=remedy)


def _sidecar_fault(
    repository: Repository, view: View, leaf: LeafName, needed: dict[Oid, list[str]], where: str
) -> str | None:
    sidecar = view.sidecar(leaf)
    assert sidecar is not None
    shown = view.leaf(leaf)
    if sidecar.state is State.RELEASED:
        if shown is not None:
            return "it was released, and its text is in the branch"
        oid = view.sidecar_id(leaf)
        assert oid is not None
        return (
            None if sidecars.is_tombstone(repository.blob(oid)) else "its tombstone is not of canonical form"
        )
    if sidecar.state is State.ARCHIVED and shown is not None:
        return "it is archived, and its text is in the branch"
    if (
        sidecar.state is not State.ARCHIVED
        and shown is None
        and look(repository, view, leaf).removed_by is None
    ):
        return "it speaks of a leaf that is not there"
    if sidecar.state in (State.ARCHIVED, State.WITHERED):
        if sidecar.full_text is None:
            return "it does not say where the full text is"
        needed.setdefault(bytes.fromhex(sidecar.full_text), []).append(where)
    return None


def _tombstones(repository: Repository, *, fix: bool) -> Iterator[Finding]:
    """No released text is left in the history of its epoch."""
    for epoch in repository.epochs():
        tip = repository.refs.head(epoch)
        assert tip is not None
        read = repository.reader()
        rewrite = Rewrite(read, find_victims(read, tip))
        rewrite.run([tip])
        if rewrite.commits[tip] == tip:
            continue
        fixed = False
        if fix:
            with repository.locked():
                fixed = all(
                    p.reach.value != "could not reach" for p in erase.purge_epoch(repository, epoch).places
                )
        what = f"released text is still in the history of {epoch}"
        yield Finding("tombstone", repository.folder, what, True, fixed, "gitmem doctor --fix")


def _returned(repository: Repository) -> Iterator[Finding]:
    """Commits that were purged here, and that a push brought back."""
    purged = erase.purged_commits(repository)
    for epoch in repository.epochs() if purged else []:
        tip = repository.refs.head(epoch)
        if tip is not None and purged & git.commits_of(tip, repository.reader()):
            remedy = "Release the leaf in that epoch, or remove the branch, then gitmem doctor --fix."
            what = f"a push brought purged history back in {epoch}"
            yield Finding("purged", repository.folder, what, remedy=remedy)


def prove_loop(home: Home) -> list[tuple[str, bool]]:
    """Write, trace, archive, remember and release in a scratch persona, which is then removed."""
    name = f"{_SCRATCH}/{_SCRATCH}"
    folder = home.path / f"{name}.git"
    home.drop(name)
    steps: list[tuple[str, bool]] = []
    try:
        memory = home.add_persona(name)
        secret = f"gitmem doctor {times.iso(memory.now())} 检查，一二三。"
        leaf = memory.write(secret)
        blob = bytes.fromhex(leaf.blob or "")
        steps.append(("write", leaf.created))
        steps.append(("trace", memory.trace(leaf.trace_path).content == secret))
        memory.archive(leaf.trace_path)
        steps.append(("archive", memory.trace(leaf.trace_path).status == "archived"))
        steps.append(("remember", memory.remember(leaf.trace_path, restore=True).content == secret))
        report = memory.release(leaf.trace_path)
        gone = not verify.remaining(f"{folder}/objects", [blob])
        steps.append(
            ("release", report.complete and gone and memory.trace(leaf.trace_path).status == "released")
        )
    finally:
        home.drop(name)
    return steps
