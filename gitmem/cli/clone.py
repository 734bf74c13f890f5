"""`gitmem clone`, and what `gitmem sync DIR` says about a working copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gitmem.cli import run
from gitmem.errors import NotFoundError, UnavailableError, UsageError
from gitmem.store.wire import split_url
from gitmem.tracepath import PersonaName

if TYPE_CHECKING:
    from gitmem.clone import BranchReport, CopyReport

_STOPPED = 3


@run.command("clone")
@click.argument("source", metavar="ROOT/PERSONA|URL")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--last", type=click.IntRange(min=0), default=7, show_default=True, help="How many epochs get a folder."
)
def clone_command(source: str, folder: str, last: int) -> None:
    """Make a working copy in DIR for people: an ordinary git clone, with a folder for each epoch.

    The files stand where trace paths say: DIR/D118/raw/…, and git commit and git push work there.
    Run again on the same DIR, it adds epochs that are new. A token is taken from
    the URL or GITMEM_TOKEN, and not stored.
    """
    from gitmem.clone import clone

    for what, value in (("persona or URL", source), ("folder", folder)):
        if not value.strip():
            raise UsageError(f"the name of the {what} is empty.", hint="gitmem clone ROOT/PERSONA|URL DIR")
    url = _url(source)
    run.note(f"Cloning {split_url(url).url if url == source else source} …")
    report = clone(url, folder, last=last, token=token())
    run.answer(report.as_dict(), lambda: tell_clone(report))


def token() -> str | None:
    """The token of the environment."""
    return os.environ.get("GITMEM_TOKEN") or None


def _url(source: str) -> str:
    """The URL of a persona of the home (by name or alias), or the source itself; a path is made absolute."""
    if "://" in source or ":" in source.partition("/")[0]:
        return source
    folder = Path(source)
    try:
        with run.open_home() as home:
            return home.persona(source).repository.folder
    except (UsageError, NotFoundError, UnavailableError):
        # A path like any other; where nothing is there, a name without a slash was meant as an alias.
        if folder.is_dir() or folder.is_file() or ("/" in source and not _is_name(source)):
            return str(folder.absolute())
        raise


def _is_name(source: str) -> bool:
    try:
        PersonaName.parse(source)
    except UsageError:
        return False
    return True


def sync_folder(folder: Path) -> None:
    """`gitmem sync DIR`, where DIR is a working copy: bring it up to date and say what was done."""
    from gitmem.clone import sync

    report = sync(folder, token=token())
    run.answer(report.as_dict(), lambda: tell_sync(report))
    if report.stopped:
        click.get_current_context().exit(_STOPPED)


def tell_clone(report: CopyReport) -> None:
    """What a clone did, for a person."""
    added = [branch.name for branch in report.branches if branch.added]
    what = ", ".join(added) if added else "no epoch that was not there"
    run.say(f"{report.folder}: {report.persona}, added: {what}.")
    _tell_rest(report)
    if added:
        run.say(f"Write there: {report.folder}/{added[-1]}/raw/…, then git commit and git push.")


def tell_sync(report: CopyReport) -> None:
    """What a sync of a working copy did, for a person."""
    for branch in report.branches:
        run.say(f"{branch.name}: {_what(branch)}")
    if not report.branches:
        run.say(f"{report.folder}: up to date.")
    _tell_rest(report)
    if report.waiting:
        run.say(f"{_count(report.waiting, 'commit')} to push: git push in the folder of each.")


def _tell_rest(report: CopyReport) -> None:
    for place in report.places:
        detail = f" ({place.detail})" if place.detail else ""
        run.say(f"  {place.reach.value:<15} {place.name}{detail}")
        if place.command:
            run.say(f"  {'run:':>15} {place.command}")
    for line in report.notes:
        run.say(f"  {line}")


def _what(branch: BranchReport) -> str:
    if branch.stopped:
        return f"left as it is: {branch.stopped}.\n  {branch.remedy}"
    words = []
    if branch.taken:
        words.append(f"{_count(branch.taken, 'commit')} taken")
    if branch.released:
        words.append(f"{len(branch.released)} released and purged ({', '.join(branch.released)})")
    if branch.waiting:
        words.append(f"{_count(branch.waiting, 'commit')} to push")
    return ", ".join(words) or "brought up to date"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
