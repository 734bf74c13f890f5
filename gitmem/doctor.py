"""Checks of a home: what is wrong, what can be put right safely, and a proof that the loop works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gitmem import host, sidecar as sidecars, times
from gitmem.errors import CorruptError, GitmemError
from gitmem.export import wiki_folder
from gitmem.home import Home
from gitmem.leaves import look
from gitmem.maintain import sweep
from gitmem.memory import Memory
from gitmem.states import State
from gitmem.store import erase, objects as git, pack, verify
from gitmem.store.objects import Oid
from gitmem.store.purge import Rewrite, find_victims
from gitmem.store.quiet import quiet
from gitmem.store.repository import Repository, View
from gitmem.tracepath import KINDS, LeafName

_SCRATCH = "gitmem-doctor"
_OLD = timedelta(days=1).total_seconds()


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
    try:
        personas = home.personas()
    except GitmemError as fault:
        return [*found, Finding("home", str(home.path), fault.message, remedy=fault.hint)]
    for persona in personas:
        found += check_memory(home.persona(persona), fix=fix)
    return found


def check_memory(memory: Memory, *, fix: bool = False) -> list[Finding]:
    """Check one persona's repository, its sidecars and tombstones, and its wiki."""
    repository = memory.repository
    found = [*_leavings(repository, fix=fix)]
    try:
        found += _connectivity(repository)
        if not any(finding.check == "git" for finding in found):
            found += _sidecars(memory)
            found += _tombstones(repository, fix=fix)
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
    """What killed processes left: journals, noted strays, unfinished files, locks."""
    folder = repository.folder
    pending = erase.pending(repository)
    strays = bool(repository.stray_ids())
    temporary = [*pack.temporary_files(f"{repository.objects}/pack"), *_unfinished(repository)]
    fixed = False
    if fix and (pending or strays or temporary):
        with repository.locked(), quiet(folder, 5) as running:
            if not running:
                sweep(repository)
                for path in temporary:
                    host.remove(path)
                fixed = not erase.pending(repository)
    for epoch in pending:
        what = f"the purge of {epoch} has not ended"
        yield Finding("journal", folder, what, True, fixed, "gitmem doctor --fix, when no git gc is running")
    if strays:
        yield Finding("strays", folder, "objects of writes that did not come about", True, fixed, "gitmem doctor --fix")
    for path in temporary:
        yield Finding("temporary", path, "an unfinished file", True, fixed, "gitmem doctor --fix")
    for path in [*repository.refs.stale_locks(), f"{folder}/packed-refs.lock"]:
        if os.path.exists(path) and _age(path) > 60:
            remedy = "If no git command is running on the repository, remove that file."
            yield Finding("lock", path, f"a lock of {int(_age(path))} seconds", remedy=remedy)
    for name in host.list_folder(repository.objects):
        path = f"{repository.objects}/{name}"
        if name.startswith(("tmp_objdir", "incoming")) and _age(path) > _OLD:
            yield Finding("temporary", path, "data of a push that never ended", remedy=f"rm -r '{path}'")


def _unfinished(repository: Repository) -> list[str]:
    return [f"{repository.objects}/{n}" for n in host.list_folder(repository.objects) if n.startswith("tmp_obj")
            and os.path.isfile(f"{repository.objects}/{n}")]  # fmt: skip


def _age(path: str) -> float:
    try:
        return host.age(path)
    except FileNotFoundError:
        return 0.0


def _sidecars(memory: Memory) -> Iterator[Finding]:
    """Each sidecar parses, and says what the branch and the history bear out."""
    repository = memory.repository
    for epoch in repository.epochs():
        view = repository.view(epoch)
        assert view is not None
        needed: dict[Oid, list[str]] = {}
        for kind in KINDS:
            for leaf in view.sidecar_ids(kind):
                where = memory.path(epoch, leaf)
                try:
                    what = _sidecar_fault(repository, view, leaf, needed, where)
                except CorruptError as fault:
                    what = fault.message
                if what:
                    yield Finding("sidecar", where, what, remedy="Correct the sidecar with git, or release the leaf.")
        if needed:
            held = git.reachable([view.tip], repository.reader())
            for oid in needed.keys() - held:
                for where in needed[oid]:
                    remedy = "Restore it from a clone or a backup; gitmem never makes text up."
                    yield Finding("sidecar", where, f"its full text {oid.hex()} is not in the history", remedy=remedy)


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
        return None if sidecars.is_tombstone(repository.blob(oid)) else "its tombstone is not of canonical form"
    if sidecar.state is State.ARCHIVED and shown is not None:
        return "it is archived, and its text is in the branch"
    if sidecar.state is not State.ARCHIVED and shown is None and look(repository, view, leaf).removed_by is None:
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
                fixed = all(p.reach.value != "could not reach" for p in erase.purge_epoch(repository, epoch).places)
        what = f"released text is still in the history of {epoch}"
        yield Finding("tombstone", repository.folder, what, True, fixed, "gitmem doctor --fix")


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
        steps.append(("release", report.complete and gone and memory.trace(leaf.trace_path).status == "released"))
    finally:
        home.drop(name)
    return steps
