"""The command line: thin commands over the library, each in the module of its noun."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from gitmem.cli.run import guarded, home_option

_COMMANDS = {
    "init": "home",
    "demo": "demo",
    "doctor": "care",
    "maintain": "care",
    "persona": "persona",
    "epoch": "persona",
    "write": "leaf",
    "record": "leaf",
    "trace": "leaf",
    "remember": "leaf",
    "hnl": "leaf",
    "archive": "states",
    "wither": "states",
    "release": "states",
    "history": "lists",
    "timeline": "lists",
    "import": "exchange",
    "export": "exchange",
    "clone": "clone",
    "remote": "sync",
    "sync": "sync",
    "status": "sync",
    "hooks": "push",
    "check": "push",
    "completion": "completion",
}

_HIDDEN = {"hook": "push"}
"""What no person calls: the hooks of a repository do."""


class _Commands(click.Group):
    """Imports the module of a command only when it is asked for: a command starts quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _COMMANDS.get(cmd_name) or _HIDDEN.get(cmd_name)
        if home is None:
            return None
        module = importlib.import_module(f"gitmem.cli.{home}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@home_option
@click.version_option(package_name="gitmem", message="%(prog)s %(version)s")
def cli() -> None:
    """A git-backed memory for AI personas.

    A trace path such as YM001/ZY001/D118/raw/20260531-115447.txt finds a leaf's exact text again:
    root, persona, epoch, kind and name. A persona can also be named by an alias.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line on `arguments` (the process's by default) and exit with its code."""
    code = guarded(cli, list(sys.argv[1:] if arguments is None else arguments))
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as fault:  # the reader has gone, or the disk is full
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = code or (0 if isinstance(fault, BrokenPipeError) else 5)
    sys.exit(code)
