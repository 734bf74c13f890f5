"""`gitmem archive`, `wither` and `release`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from gitmem.cli import run
from gitmem.errors import RefusedError, UsageError
from gitmem.memory import Memory
from gitmem.report import Reach, ReleaseReport
from gitmem.tracepath import TracePath, parse_hnl
from gitmem.transaction import Leaf

_STILL_THERE = 3
"""Exit code of a release whose remotes still give out the text, or do not tell."""


@contextmanager
def _memory_of(paths: Iterable[str]) -> Iterator[Memory]:
    """The one memory that all paths belong to."""
    parsed = [found.paths[0] if (found := parse_hnl(path)) else TracePath.parse(path) for path in paths]
    keys = {path.persona_name.key for path in parsed}
    if len(keys) > 1:
        raise UsageError(
            "the paths belong to several personas.", hint="Run the command once for each persona."
        )
    with run.open_home() as home:
        yield home.persona(parsed[0].persona_name)


def _results(leaves: list[Leaf], status: str) -> list[dict[str, Any]]:
    return [{"trace_path": leaf.trace_path, "status": status, "commit": leaf.commit} for leaf in leaves]


@run.command("archive")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
def archive_command(paths: tuple[str, ...]) -> None:
    """Archive leaves: their text leaves the branch, and history keeps it.

    gitmem remember PATH reads it again; --restore brings it back.
    """
    with _memory_of(paths) as memory:
        leaves = memory.archive(*paths)

    def text() -> None:
        for leaf in leaves:
            run.say(f"{leaf.trace_path}  archived")

    run.answer({"results": _results(leaves, "archived")}, text)


@run.command("wither")
@click.argument("path", metavar="PATH")
@click.option(
    "--keep",
    type=float,
    default=0.4,
    show_default=True,
    help="Share of the sentences that stays sharp, 0 to 1.",
)
@click.option(
    "--forget-original", is_flag=True, help="Purge the sharp text from history too. There is no way back."
)
def wither_command(path: str, keep: float, forget_original: bool) -> None:
    """Blur a raw leaf: some sentences stay word for word, the rest becomes ……

    Git history still holds the sharp text, and gitmem remember --restore brings it back, unless
    --forget-original purges it.
    """
    with _memory_of([path]) as memory:
        leaf = memory.wither(path, keep, forget_original=forget_original)
    value: dict[str, Any] = {"results": _results([leaf], "wither")}
    if leaf.report is not None:
        value["report"] = leaf.report.as_dict()

    def text() -> None:
        run.say(f"{leaf.trace_path}  withered{'; its original was forgotten' if leaf.report else ''}")
        if leaf.report is not None:
            _print_places(leaf.report)

    run.answer(value, text)


@run.command("release")
@click.argument("paths", metavar="PATH…", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be purged, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--verify-remote", is_flag=True, help="Sync afterwards, and ask the remotes whether they still have it."
)
def release_command(paths: tuple[str, ...], dry_run: bool, yes: bool, verify_remote: bool) -> None:
    """Release leaves: purge their text from history, packs and everything gitmem knows of.

    There is no way back: not by gitmem, not by git. The report names each place, and the
    command to run for those that gitmem could not reach.
    """
    with _memory_of(paths) as memory:
        if verify_remote and not memory.repository.label:
            message = f"{memory.name} has no remote; nothing was released."
            raise UsageError(message, hint=f"gitmem remote add {memory.name} URL")
        if not dry_run:
            memory.release(*paths, dry_run=True)  # names what is wrong before asking
            _confirm(paths, yes=yes)
        report = memory.release(*paths, dry_run=dry_run)
    if verify_remote:
        _verify(memory, report)
    else:
        run.answer(_value(report), lambda: _print_report(report))


def _value(report: ReleaseReport) -> dict[str, Any]:
    return {"results": [result.as_dict() for result in report.results], "report": report.as_dict()}


def _verify(memory: Memory, report: ReleaseReport) -> None:
    """Sync, and tell what the remotes answered as a part of the report."""
    from gitmem.cli import sync
    from gitmem.sync import verified

    told = sync.run_sync(memory.name, dry_run=report.dry_run)
    whole = report if report.dry_run else verified(report, told)

    def text() -> None:
        _print_report(whole)
        sync.tell_all(told)

    run.answer(_value(whole) | {"remotes": told.as_dict()["results"]}, text)
    still = any(place.reach is Reach.UNREACHED and place.name.startswith("remote ") for place in whole.places)
    code = told.exit_code or (_STILL_THERE if still and not report.dry_run else 0)
    if code:
        click.get_current_context().exit(code)


def _confirm(paths: tuple[str, ...], *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise RefusedError(
            "release cannot be undone and asks first.", hint="Add --yes to go on without a question."
        )
    for path in paths:
        run.note(f"  {path}")
    typed = click.prompt(
        f"This purges {len(paths)} leaf(s) for ever. Type release to go on",
        err=True,
        default="",
        show_default=False,
    )
    if typed.strip().lower() != "release":
        raise RefusedError("not confirmed; nothing was changed.")


def _print_report(report: ReleaseReport) -> None:
    for result in report.results:
        run.say(f"{result.trace_path}  {'would be released' if report.dry_run else 'released'}")
    _print_places(report)


def _print_places(report: ReleaseReport) -> None:
    verb = "would be deleted" if report.dry_run else "deleted"
    run.say(f"{report.objects} git objects {verb}.")
    for place in report.places:
        detail = f" ({place.detail})" if place.detail else ""
        run.say(f"  {place.reach.value:<15} {place.name}{detail}")
        if place.reach is Reach.UNREACHED and place.command:
            run.say(f"  {'run:':>15} {place.command}")
    for line in report.notes:
        run.say(f"  {line}")
    if not report.dry_run:
        run.note("Clones, mirrors and backups that gitmem does not know of keep what they copied.")
