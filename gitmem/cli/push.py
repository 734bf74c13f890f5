"""`gitmem hook`, `hooks` and `check`: what a push may do."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from gitmem.cli import run
from gitmem.errors import GitmemError

if TYPE_CHECKING:
    from gitmem.receive.identity import Role


@click.command("hook", hidden=True)
@click.argument("name", type=click.Choice(["pre-receive", "post-receive"]))
def hook_command(name: str) -> None:
    """What the hooks in a repository call; the current folder is the repository."""
    from gitmem.receive.hook import post_receive, pre_receive

    lines = sys.stdin.buffer.readlines()
    if name == "post-receive":
        _tell(post_receive(os.getcwd(), lines))
        return
    try:
        accepted, said = pre_receive(os.getcwd(), lines, os.environ)
    except GitmemError as fault:
        accepted, said = False, [f"gitmem: push refused: {fault.message} {fault.hint}".rstrip()]
    _tell(said)
    if not accepted:
        click.get_current_context().exit(4)


def _tell(lines: list[str]) -> None:
    run.print_bytes("".join(line + "\n" for line in lines).encode("utf-8", "replace"))


class _Group(click.Group):
    """Subcommands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group("hooks", cls=_Group)
def hooks_command() -> None:
    """Let bare repositories check what is pushed to them."""


_REPOSITORIES = click.argument(
    "repositories", metavar="REPO…", nargs=-1, required=True, type=click.Path(file_okay=False)
)


def _each(repositories: tuple[str, ...], work: Any, key: str) -> None:
    """Do `work` to each repository and print what it says."""
    entries = [{"repository": os.path.abspath(folder), key: work(folder)} for folder in repositories]

    def text() -> None:
        for entry in entries:
            for line in entry[key] or ["nothing to do"]:
                run.say(f"{entry['repository']}: {line}")

    run.answer({"entries": entries, "next": None}, text)


@hooks_command.command("install")
@_REPOSITORIES
@run.home_option
@run.json_option
def hooks_install_command(repositories: tuple[str, ...]) -> None:
    """Put gitmem's hooks into bare repositories, beside hooks that are there. Again is harmless.

    Both hook layouts of Forgejo run them, and git itself.
    """
    from gitmem.receive import install

    _each(repositories, install.install, "done")


@hooks_command.command("uninstall")
@_REPOSITORIES
@run.home_option
@run.json_option
def hooks_uninstall_command(repositories: tuple[str, ...]) -> None:
    """Take gitmem's hooks out again; every other byte stays as it was."""
    from gitmem.receive import install

    _each(repositories, install.uninstall, "done")


@hooks_command.command("status")
@_REPOSITORIES
@run.home_option
@run.json_option
def hooks_status_command(repositories: tuple[str, ...]) -> None:
    """Say whether the hooks are there and run. Exit code 5 where one does not."""
    from gitmem.receive import install

    found = {os.path.abspath(folder): install.status(folder) for folder in repositories}
    entries = [{"repository": path, "hooks": [h.as_dict() for h in hooks]} for path, hooks in found.items()]

    def text() -> None:
        for path, hooks in found.items():
            for hook in hooks:
                run.say(f"{path}: {hook.name}: {hook.state}" + (f" ({hook.detail})" if hook.detail else ""))

    run.answer({"entries": entries, "next": None}, text)
    if any(hook.state != "ready" for hooks in found.values() for hook in hooks):
        click.get_current_context().exit(5)


@run.command("check")
@click.argument("repository", metavar="[REPO]", default=".", type=click.Path(exists=True, file_okay=False))
@click.argument("span", metavar="[OLD..NEW]", required=False)
@click.option(
    "--branch", metavar="NAME", help="The branch that NEW belongs to, where NEW is no branch's name."
)
@click.option(
    "--role",
    type=click.Choice(["persona", "human", "operator"]),
    default="persona",
    show_default=True,
    help="Who is said to push.",
)
def check_command(repository: str, span: str | None, branch: str | None, role: Role) -> None:
    """Check commits by the rules of a push, for hosts that allow no hooks. Exit code 4 where one is broken.

    Without OLD..NEW every branch is checked from its beginning.
    """
    from gitmem.receive.check import check
    from gitmem.receive.hook import line_of

    found = check(repository, span, branch=branch, role=role)
    value = {
        "ok": not found.refused,
        "commits": found.commits,
        "violations": [violation.as_dict() for violation in found.violations],
    }

    def text() -> None:
        for violation in found.violations:
            run.say(line_of(violation))
        count = sum(not violation.warning for violation in found.violations)
        broken = (
            f"{count} {'violation' if count == 1 else 'violations'}"
            if found.refused
            else "all rules are kept"
        )
        run.say(f"{found.commits} commits checked: {broken}.")

    run.answer(value, text)
    if found.refused:
        click.get_current_context().exit(4)
