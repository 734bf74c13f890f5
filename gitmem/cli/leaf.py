"""`gitmem write`, `record`, `trace`, `remember` and `hnl`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

import click

from gitmem.cli import run
from gitmem.errors import NotFoundError, UsageError
from gitmem.leaves import MODES, Mode, Retrieval, not_found
from gitmem.tracepath import TracePath, check_epoch, parse_hnl
from gitmem.transaction import Leaf


def _input(file: str | None, limit: int) -> bytes:
    """The bytes of a file, or of standard input; no more than one over the limit is read."""
    if file is None or file == "-":
        if sys.stdin is None:
            raise UsageError("there is no standard input to read the text from.")
        if sys.stdin.isatty():
            run.note("Type the text, then Ctrl-D.")
        return sys.stdin.buffer.read(limit + 1)
    path = Path(file)
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file.", hint="For folders use gitmem import.")
    if not path.exists():
        raise UsageError(f"there is no file {path}.")
    with path.open("rb") as stream:
        return stream.read(limit + 1)


def _written(leaf: Leaf) -> None:
    value = {"trace_path": leaf.trace_path, "commit": leaf.commit, "blob": leaf.blob, "created": leaf.created}

    def text() -> None:
        run.say(leaf.trace_path)
        if not leaf.created:
            run.note("This turn was written before; nothing was changed.")

    run.answer(value, text)


@run.command("write")
@click.argument("persona", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--epoch", metavar="NAME", help="The epoch to write to; else the current one.")
@click.option("--at", metavar="TIME", help="When it was said, ISO 8601; else now.")
@click.option("--label", metavar="LABEL", help="Follows the second in the leaf's name.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option("--role", metavar="ROLE", help="Who spoke: user, companion, …")
@click.option("--turn-id", metavar="ID", help="With the role, unique: the same turn again changes nothing.")
@click.option("--summary", metavar="TEXT", help="A gist of the text.")
def write_command(persona: str, file: str | None, **options: Any) -> None:
    """Write a text (of FILE, or standard input) as a leaf, and print its trace path.

    The bytes are kept exactly as they are: UTF-8, any line endings.
    """
    with run.open_home() as home:
        memory = home.persona(persona)
        _written(memory.write(_input(file, home.settings.max_leaf_bytes), **options))


@run.command("record")
@click.argument("persona", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--epoch", metavar="NAME", help="The epoch to write to; else the current one.")
@click.option("--at", metavar="TIME", help="The record's time, ISO 8601; else now.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="May be repeated.")
@click.option("--id", "id", metavar="mem_…", help="The record's id; else gitmem chooses one.")
@click.option("--human-visible/--private", "human_visible", default=False, help="Whether humans may see it.")
@click.option("--untold", is_flag=True, help="Hold a visible record back until it is told.")
@click.option("--text", "as_text", is_flag=True, help="Take the input as a string, even if it is JSON.")
def record_command(persona: str, file: str | None, untold: bool, as_text: bool, **options: Any) -> None:
    """Write a record: JSON of FILE or standard input; anything else is kept as a string."""
    with run.open_home() as home:
        memory = home.persona(persona)
        data = memory.check_text(_input(file, home.settings.max_leaf_bytes))
        value: Any = data.decode("utf-8")
        if not as_text:
            try:
                value = json.loads(value, parse_constant=_no_constant)
            except (ValueError, RecursionError):
                if value.lstrip()[:1] in ("{", "["):
                    run.note("The input looks like JSON and is not; it is kept as a string.")
        _written(memory.record(value, told=False if untold else None, **options))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _show(found: Retrieval) -> None:
    """The leaf's exact bytes on stdout, its status on stderr; exit code 1 where it is not found."""
    if run.wants_json():
        run.print_json(found.as_dict())
    elif found.found and found.content is not None:
        more = f" · archived {found.archived_at}" if found.archived_at else ""
        run.note(f"{found.status} · {found.ts}{more} · {found.trace_path}")
        run.print_bytes(found.content.encode("utf-8"))
    else:
        run.note(f"not found: {found.trace_path} ({_REASONS.get(found.reason or '', found.reason)})")
    if not found.found:
        click.get_current_context().exit(1)


_REASONS = {
    "not_found": "there never was such a leaf here",
    "released": "it was released; its text exists no more",
    "archived": "it is archived; use --mode archived or auto",
    "active": "it is active; use --mode active or auto",
    "wither": "it is withered; use --mode active or auto",
}


def _trace(path: str, mode: str, epoch: str | None) -> Retrieval:
    if epoch is not None:
        check_epoch(epoch)
    try:
        with run.open_memory(path) as (memory, target):
            return memory.trace(target, cast("Mode", mode), epoch)
    except NotFoundError:
        return not_found(_plain(path))


def _remember(path: str, *, restore: bool) -> Retrieval:
    try:
        with run.open_memory(path) as (memory, target):
            return memory.remember(target, restore=restore)
    except NotFoundError:
        return not_found(_plain(path))


def _plain(path: str) -> str:
    found = parse_hnl(path)
    return found.paths[0] if found else TracePath.parse(path)


@run.command("trace")
@click.argument("path", metavar="PATH")
@click.option(
    "--mode", type=click.Choice(MODES), default="auto", show_default=True, help="Which leaves to read."
)
@click.option("--epoch", metavar="NAME", help="Only where the leaf is in this epoch.")
def trace_command(path: str, mode: str, epoch: str | None) -> None:
    """Print the exact text of a leaf, by its trace path.

    Exit code 1 where it is not found or was released.
    """
    _show(_trace(path, mode, epoch))


@run.command("remember")
@click.argument("path", metavar="PATH")
@click.option("--restore", is_flag=True, help="Make it active again, with its full text.")
def remember_command(path: str, restore: bool) -> None:
    """Print a leaf, also an archived one, in full from history."""
    _show(_remember(path, restore=restore))


@run.command("hnl")
@click.argument("string", metavar="STRING")
def hnl_command(string: str) -> None:
    """Do what an HNL string says.

    TRACE.ROOT/PERSONA.EPOCH/KIND/NAME.LEAF_TO_ROOT reads a leaf, REMEMBER.TRACE_PATH reads it
    from wherever it is.
    """
    sentence = parse_hnl(string)
    if sentence is None:
        raise UsageError(f"{string[:80]!r} is not an HNL string; it begins with TRACE. or REMEMBER.")
    _show(_trace(string, "auto", None) if sentence.verb == "trace" else _remember(string, restore=False))
