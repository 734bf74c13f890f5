"""`gitmem completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gitmem.cli import run


@run.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a script that completes gitmem's commands and personas.

    Bash: eval "$(gitmem completion bash)" in ~/.bashrc. Zsh likewise. Fish: gitmem completion fish | source.
    """
    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(root, {}, "gitmem", "_GITMEM_COMPLETE").source()
    run.answer({"shell": shell, "script": script}, script)
