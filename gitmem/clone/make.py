"""`gitmem clone`: a working copy for people, with a folder for each of the last epochs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from gitmem import host
from gitmem.clone.folder import (
    TRACKING,
    WorkingCopy,
    add_epoch,
    is_copy,
    make_folder,
    open_copy,
    reconnect,
    show_main,
)
from gitmem.clone.report import BranchReport, CopyReport
from gitmem.clone.update import received, wire_to
from gitmem.errors import ConflictError, GitmemError, UnavailableError, UsageError
from gitmem.store.wire import Wire, split_url
from gitmem.tracepath import is_epoch, natural_order

LAST = 7


def clone(url: str, folder: str | Path, *, last: int = LAST, token: str | None = None) -> CopyReport:
    """Make a working copy of a persona's repository, or add new epochs to one that is there.

    A new one comes about whole or not at all. In one that is there, nothing is touched but what is
    new. `last` is how many epochs get a folder, counted from the newest in natural order. A token
    in the URL is used, and not stored.

    Raises:
        UsageError: a malformed URL, or a negative `last`.
        ConflictError: the folder holds something else, or an epoch has the name of a file there.
        NotFoundError: the URL is not a persona's repository.
        RefusedError: the URL is no longer that of the persona whose copy is there.
        UnavailableError: it cannot be reached, or the folder cannot be made.
    """
    if last < 0:
        raise UsageError("--last must be 0 or more.")
    target = Path(folder).absolute()
    wire = wire_to(url, token)
    with _making(target):
        report = _add(wire, target, last) if is_copy(target) else _make(wire, target, last)
    if split_url(url, token).token:
        report.notes.append(
            "The token of the URL was not stored: git pull and git push ask git's credential helper, "
            "gitmem sync takes GITMEM_TOKEN."
        )
    return report


@contextlib.contextmanager
def _making(target: Path) -> Iterator[None]:
    try:
        yield
    except GitmemError:
        raise
    except OSError as fault:
        message = f"{target} cannot be made: {fault.strerror or fault}."
        raise UnavailableError(message, hint="Choose a folder that can be written to.") from None


def _make(wire: Wire, target: Path, last: int) -> CopyReport:
    host.check_free(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = host.draft_folder(target)
    try:
        draft.mkdir()
        report = _fill(make_folder(draft, wire.url), wire, last)
        host.move_folder(draft, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            host.remove_tree(draft)
        raise
    copy = open_copy(target)
    with copy.repository.locked():
        reconnect(copy)
    report.folder = str(target)
    return report


def _fill(copy: WorkingCopy, wire: Wire, last: int) -> CopyReport:
    try:
        with copy.repository.locked():
            with received(copy, wire) as update:
                update.bring(update.names())
            report = update.report
            show_main(copy)
            names = _last(_epochs(copy), last)
            _check_names(copy, names)
            for name in names:
                add_epoch(copy, name)
            taken = {branch.name: branch.taken for branch in report.branches}
            report.branches = [BranchReport(name, taken.get(name, 0), added=True) for name in names]
            return report
    finally:
        copy.repository.close()


def _add(wire: Wire, target: Path, last: int) -> CopyReport:
    copy = open_copy(target)
    present = wire_to(copy.url).url
    if os.path.realpath(present) != os.path.realpath(wire.url) and present != wire.url:
        raise ConflictError(
            f"{target} is a working copy of {present}, not of {wire.url}.", hint="Choose a new folder."
        )
    try:
        with copy.repository.locked():
            reconnect(copy)
            here = {each.branch.removeprefix("refs/heads/") for each in copy.worktrees()}
            with received(copy, wire) as update:
                names = [name for name in _last(_valid(update.heads), last) if name not in here]
                _check_names(copy, names)
                update.bring(names)
            for name in names:
                add_epoch(copy, name)
            report = update.report
            added = {name: BranchReport(name) for name in names}
            added |= {branch.name: branch for branch in report.branches if branch.name in added}
            for branch in added.values():
                branch.added = True
            report.branches = list(added.values())
            return report
    finally:
        copy.repository.close()


def _epochs(copy: WorkingCopy) -> list[str]:
    return _valid(name.removeprefix(TRACKING) for name in copy.repository.refs.all(TRACKING))


def _valid(names: Iterable[str]) -> list[str]:
    return sorted(filter(is_epoch, names), key=natural_order)


def _last(names: list[str], last: int) -> list[str]:
    return names[-last:] if last else []


def _check_names(copy: WorkingCopy, names: Iterable[str]) -> None:
    """Raise `ConflictError` where something stands at the place of an epoch's folder."""
    present = {name.lower(): name for name in host.list_folder(copy.folder)}
    for name in names:
        taken = present.get(name.lower())
        if taken is None:
            continue
        path = f"{copy.folder}/{taken}"
        if os.path.isdir(path) and not os.path.islink(path) and not host.list_folder(path) and taken == name:
            continue
        raise ConflictError(
            f"the epoch {name} cannot have a folder in {copy.folder}: {taken} stands there.",
            hint=f"Move it away; or leave the epoch out (--last), and git worktree add OTHERFOLDER {name}.",
        )
