"""`gitmem remote`, `gitmem sync` and `gitmem status`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gitmem.cli import run
from gitmem.errors import GitmemError, NotFoundError, UnavailableError, UsageError
from gitmem.report import Reach
from gitmem.store.wire import scrub, split_url

if TYPE_CHECKING:
    from gitmem.sync import BranchReport, RemoteReport, SyncReport

_VARIABLE = "GITMEM_TOKEN"


def _read_token(file: str | None) -> str | None:
    if file is None:
        return os.environ.get(_VARIABLE) or None
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise UnavailableError(f"the token file {file} cannot be read: {fault}.") from None
    if not text.strip():
        raise UsageError(f"the token file {file} is empty.")
    return text.strip()


@click.group("remote")
@run.home_option
def remote_command() -> None:
    """Repositories elsewhere that a persona is kept in step with."""


@remote_command.command("add")
@click.argument("name", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.argument("url", metavar="URL")
@click.option("--name", "remote", default="origin", show_default=True, help="What to call it here.")
@click.option("--token-file", metavar="FILE", help="Where to read its token; - is standard input.")
@run.home_option
@run.json_option
def add(name: str, url: str, remote: str, token_file: str | None) -> None:
    """Note a remote: http(s)://, ssh://, or a path. gitmem sync then exchanges with it.

    A persona that is not here yet is taken from there at once. A token in the URL, in --token-file or
    in GITMEM_TOKEN is kept in HOME/credentials, never in the URL.
    """
    from gitmem.sync import add_remote, list_remotes

    token = _read_token(token_file)
    if token_file is None and split_url(url, token).token:
        token = None  # the one in the URL goes before that of the environment
    with run.open_home() as home:
        report = add_remote(home, name, url, remote=remote, token=token)
        persona, there = next((p, r) for p, r in list_remotes(home, name) if r.name == remote)
        value = {"persona": persona} | there.as_dict() | {"taken": report is not None}

        def text() -> None:
            run.say(f"{persona} has the remote {there.name}: {there.url}")
            if report is None:
                run.say(f"Next: gitmem sync {persona}")
            else:
                _tell(report)

        run.answer(value, text)


@remote_command.command("list")
@click.argument("name", metavar="[ROOT/PERSONA]", required=False, type=run.PERSONA)
@run.home_option
@run.json_option
def list_(name: str | None) -> None:
    """List remotes: of one persona, or of all."""
    from gitmem.sync import list_remotes

    with run.open_home() as home:
        found = list_remotes(home, name)

    def text() -> None:
        for persona, remote in found:
            run.say(f"{persona}  {remote.name}  {remote.url}{'  (token stored)' if remote.token else ''}")
        if not found:
            run.note("No remote yet. Add one: gitmem remote add ROOT/PERSONA URL")

    entries = [{"persona": persona} | remote.as_dict() for persona, remote in found]
    run.answer({"entries": entries, "next": None}, text)


@remote_command.command("remove")
@click.argument("name", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.option("--name", "remote", default="origin", show_default=True, help="Which one.")
@run.home_option
@run.json_option
def remove(name: str, remote: str) -> None:
    """Forget a remote and its token. Nothing changes there."""
    from gitmem.sync import remove_remote

    with run.open_home() as home:
        memory = home.persona(name)
        remove_remote(home, name, remote)
        run.answer(
            {"persona": memory.name, "remote": remote}, f"{memory.name} has no remote {remote} any more."
        )


@run.command("sync")
@click.argument("name", metavar="[ROOT/PERSONA|DIR]", required=False, type=run.PERSONA)
@click.option("--remote", metavar="NAME", help="Only with the remote of that name.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option(
    "--rewrite-remote",
    is_flag=True,
    help="Replace branches by force on a remote that still holds released text.",
)
def sync_command(name: str | None, remote: str | None, dry_run: bool, rewrite_remote: bool) -> None:
    """Bring a persona to the same state here and at its remotes: all personas where none is named.

    Takes what is new there, recreates what is new here on top of it, and pushes. A leaf released on
    one side is purged on the other. DIR is a working copy that gitmem clone made.
    """
    copy = _working_copy(name)
    if copy is not None:
        if dry_run or rewrite_remote or remote:
            raise UsageError("a working copy is synced without options.")
        from gitmem.cli.clone import sync_folder

        sync_folder(copy)
        return
    report = run_sync(name, remote=remote, dry_run=dry_run, rewrite_remote=rewrite_remote)
    run.answer(report.as_dict(), lambda: tell_all(report))
    if report.exit_code:
        click.get_current_context().exit(report.exit_code)


def run_sync(
    name: str | None, *, remote: str | None = None, dry_run: bool = False, rewrite_remote: bool = False
) -> SyncReport:
    """Sync in the home that this command works on."""
    from gitmem.sync import sync

    with run.open_home() as home:
        return sync(
            home, name, remote=remote, token=_read_token(None), dry_run=dry_run, rewrite_remote=rewrite_remote
        )


def _working_copy(name: str | None) -> Path | None:
    """The working copy that is meant, where it is no persona: the folder, or one above it, with `.git` in it.

    Raises:
        UsageError: it is a URL, or a folder that is no working copy.
        NotFoundError: it is a path, and nothing is there.
    """
    if not name:
        return None
    if "://" in name:
        message = f"{scrub(name)[:200]} is a URL; a persona or a folder is synced."
        raise UsageError(message, hint="Note it as a remote first: gitmem remote add ROOT/PERSONA URL.")
    is_path = name.startswith(("/", "./", "../", "~")) or name.endswith("/") or name in (".", "..")
    folder = Path(name)
    if not is_path and (not folder.is_dir() or _is_persona(name)):
        return None
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder {name}.", hint="Name a persona, or a working copy.")
    above = (folder, *folder.absolute().parents) if is_path else (folder,)
    found = next((place for place in above if (place / ".git").exists()), None)
    if found is None and is_path:
        message = f"the folder {name} is no working copy."
        raise UsageError(message, hint=f"gitmem clone ROOT/PERSONA {name} makes one.")
    return found


def _is_persona(name: str) -> bool:
    try:
        with run.open_home() as home:
            home.persona(name)
    except GitmemError:
        return False
    return True


def tell_all(report: SyncReport) -> None:
    """What a sync did, for a person."""
    if not report.remotes:
        run.note("No persona has a remote yet. Add one: gitmem remote add ROOT/PERSONA URL")
    for remote in report.remotes:
        run.say(f"{remote.persona}  {remote.remote}  {remote.url}")
        _tell(remote)


def _tell(report: RemoteReport) -> None:
    if report.error:
        run.say(f"  {'not reached' if not report.reached else 'stopped'}: {report.error}")
        if report.hint:
            run.say(f"    {report.hint}")
    for branch in report.told:
        _tell_branch(branch, dry_run=report.dry_run)
    if not report.told and not report.error:
        run.say("  in step")
    for place in report.places:
        run.say(f"  {place.reach.value:<15} {place.name}{f' ({place.detail})' if place.detail else ''}")
        if place.reach is Reach.UNREACHED and place.command:
            run.say(f"  {'run:':>15} {place.command}")
    if report.waiting:
        run.say(f"  {report.waiting} commits wait for this remote")


def _tell_branch(branch: BranchReport, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    counts = [(branch.taken, "taken"), (branch.sent, "sent"), (branch.released, "released")]
    words = [f"{count} {would}{word}" for count, word in counts if count]
    if branch.joined:
        words.append("ours recreated on theirs")
    run.say(f"  {branch.branch}: {', '.join(words) or 'nothing done'}")
    for old, new in branch.renamed.items():
        run.say(f"    renamed: {old} is {new} now; the other home had given that name too")
    for old, new in branch.dropped.items():
        run.say(f"    dropped: {old} says what {new} says, of the same turn")
    for line in branch.conflicts:
        run.say(f"    please decide: {line}")
    for line in branch.notes:
        run.say(f"    {line}")
    if branch.stopped:
        run.say(f"    stopped: {branch.stopped}")


@run.command("status")
@click.argument("name", metavar="[ROOT/PERSONA]", required=False, type=run.PERSONA)
def status_command(name: str | None) -> None:
    """Say how many commits wait for which remote. Looks only at this home, not at the network."""
    from gitmem.sync import status

    with run.open_home() as home:
        found = status(home, name)

    def text() -> None:
        for waiting in found:
            epochs = ", ".join(f"{epoch} {count}" for epoch, count in waiting.epochs.items())
            words = [f"{waiting.commits} commits wait ({epochs})"] if epochs else []
            if waiting.stopped:
                words.append(f"not in step: {', '.join(waiting.stopped)}; gitmem sync says why")
            what = ", ".join(words) or "in step when last synced"
            run.say(f"{waiting.persona}  {waiting.remote}  {what}")
        if not found:
            run.note("No persona has a remote yet. Add one: gitmem remote add ROOT/PERSONA URL")

    run.answer({"entries": [waiting.as_dict() for waiting in found], "next": None}, text)
