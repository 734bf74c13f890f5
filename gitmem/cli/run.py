"""What every command shares: the home, output as text or JSON, errors as a line and an exit code.

0 done, found · 1 not found, or no · 2 usage · 3 conflict · 4 refused · 5 unavailable or corrupt
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gitmem.errors import GitmemError, UsageError
from gitmem.home import Home
from gitmem.memory import Memory
from gitmem.store.wire import scrub_given
from gitmem.tracepath import TracePath, parse_hnl

F = TypeVar("F", bound=Callable[..., Any])
_HOME = "gitmem.home"
_JSON = "gitmem.json"
Progress = Callable[[int, int], None]


def _keep(key: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def keep(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            ctx.meta[key] = value
        return value

    return keep


home_option = click.option(
    "--home",
    metavar="DIR",
    expose_value=False,
    callback=_keep(_HOME),
    help="The home to use; else GITMEM_HOME, else the platform's data folder.",
)
json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_keep(_JSON), help="Print one JSON object."
)


def command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command with the options that all have: `--home` and `--json`."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        return click.command(name=name, cls=click.Command)(home_option(json_option(function)))

    return wrap


def chosen_home() -> Path | None:
    """The home named by `--home` or GITMEM_HOME."""
    chosen = click.get_current_context().meta.get(_HOME) or os.environ.get("GITMEM_HOME")
    return Path(chosen) if chosen else None


def home_path() -> Path:
    """Where the home is."""
    chosen = chosen_home()
    if chosen is not None:
        return chosen
    from platformdirs import user_data_path

    try:
        return user_data_path("gitmem", appauthor=False)
    except (RuntimeError, KeyError, OSError):
        raise UsageError(
            "no folder for the home is known.", hint="Name one: --home DIR, or GITMEM_HOME."
        ) from None


@contextmanager
def open_home() -> Iterator[Home]:
    """The home this command works on."""
    with Home(home_path()) as home:
        yield home


@contextmanager
def open_memory(path: str) -> Iterator[tuple[Memory, TracePath]]:
    """The memory that a trace path or HNL string belongs to, and the path."""
    found = parse_hnl(path)
    readings = found.paths if found else (TracePath.parse(path),)
    with open_home() as home:
        here = {persona.lower() for persona in home.personas()} if len(readings) > 1 else set()
        target = next((r for r in readings if r.persona_name.key in here), readings[0])
        memory = home.persona(target.persona_name)
        yield memory, memory.own(target)


# -- output ---------------------------------------------------------------------------------


def wants_json() -> bool:
    """Whether the command was asked for JSON."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx and ctx.meta.get(_JSON))


def say(text: str) -> None:
    """A line of the result, on stdout."""
    click.echo(text)


def note(text: str) -> None:
    """A line for the person, on stderr."""
    click.echo(text, err=True)


def answer(value: dict[str, Any], text: str | Callable[[], None]) -> None:
    """The result: as JSON where asked for, else as text."""
    if wants_json():
        print_json(value)
    elif callable(text):
        text()
    else:
        say(text)


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    data = (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "surrogatepass")
    print_bytes(data)


def print_bytes(data: bytes) -> None:
    """Exactly these bytes on stdout."""
    if sys.stdout is not None:  # None: it was closed
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _no_bar(done: int, total: int) -> None:
    """Progress that nobody sees."""
    del done, total


@contextmanager
def progress(label: str) -> Iterator[Progress]:
    """A bar on stderr once a task has taken a second, on a terminal only."""
    if not sys.stderr.isatty():
        yield _no_bar
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=None)
    began = time.monotonic()
    shown = False

    def update(done: int, total: int) -> None:
        nonlocal shown
        if not shown and time.monotonic() - began > 1:
            bar.start()
            shown = True
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        if shown:
            bar.stop()


# -- errors ---------------------------------------------------------------------------------


def guarded(root: click.Command, arguments: list[str]) -> int:
    """Run a command; every failure becomes a line on stderr and an exit code."""
    as_json = "--json" in arguments
    _given[:] = arguments
    try:
        result = root.main(arguments, prog_name="gitmem", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.ctx.get_help() if fault.ctx else str(fault), err=True)
        return 2
    except click.ClickException as fault:
        return _fail("usage", fault.format_message(), _usage_hint(fault), 2, as_json=as_json)
    except click.exceptions.Abort:
        return _fail("refused", "stopped; nothing was changed.", "", 4, as_json=as_json)
    except click.exceptions.Exit as fault:
        return fault.exit_code
    except GitmemError as fault:
        return _fail(fault.code, fault.message, fault.hint, fault.exit_code, as_json=as_json)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return _fail(
            "stopped",
            "stopped by Ctrl-C.",
            "Run the command again; what was begun is put right.",
            130,
            as_json=as_json,
        )
    except (OSError, sqlite3.Error) as fault:
        return _fail("unavailable", f"{fault}.", "", 5, as_json=as_json)
    return result if isinstance(result, int) else 0


def _usage_hint(fault: click.ClickException) -> str:
    ctx = getattr(fault, "ctx", None)
    return f"See {ctx.command_path} --help." if ctx else ""


_given: list[str] = []
"""The arguments of the command line: a login in one of them is never said again."""


def _fail(code: str, message: str, hint: str, exit_code: int, *, as_json: bool) -> int:
    message, hint = (scrub_given(text, _given) for text in (message, hint))
    if as_json:
        body = {"error": {"code": code, "message": message} | ({"hint": hint} if hint else {})}
        with contextlib.suppress(OSError):  # stdout itself may be what failed
            print_json(body)
    click.echo(f"gitmem: {message}" + (f"\n  {hint}" if hint else ""), err=True)
    return exit_code


# -- completion -----------------------------------------------------------------------------


class PersonaType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """`ROOT/PERSONA` or an alias, completed from the home."""

    name = "persona"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            with ctx, open_home() as home:
                names = [name for persona in home.personas() for name in (persona, *persona.aliases)]
        except (GitmemError, OSError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


PERSONA = PersonaType()
