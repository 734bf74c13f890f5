"""`gitmem persona` and `gitmem epoch`."""

from __future__ import annotations

import re

import click

from gitmem.cli import run
from gitmem.errors import ConflictError


@click.group("persona")
@run.home_option
def persona_command() -> None:
    """Make and list personas."""


@persona_command.command("add")
@click.argument("name", metavar="ROOT/PERSONA")
@click.option("--alias", "aliases", multiple=True, metavar="NAME", help="Another name; may be repeated.")
@click.option("--human", metavar="NAME", help="The human this persona talks to.")
@click.option(
    "--timezone",
    default="UTC",
    metavar="ZONE",
    show_default=True,
    help="IANA name, such as Asia/Shanghai; fixed from now on.",
)
@run.home_option
@run.json_option
def add(name: str, aliases: tuple[str, ...], human: str | None, timezone: str) -> None:
    """Make a persona and its repository."""
    with run.open_home() as home:
        memory = home.add_persona(name, aliases=aliases, human=human, timezone=timezone)
        value = {"persona": memory.name, "repository": memory.repository.folder}
        run.answer(
            value, f"{memory.name} is ready in {memory.repository.folder}. Next: gitmem write {memory.name}"
        )


@persona_command.command("list")
@run.home_option
@run.json_option
def list_() -> None:
    """List the personas of the home."""
    with run.open_home() as home:
        personas = home.personas()
        value = {"entries": [persona.as_dict() for persona in personas], "next": None}

        def text() -> None:
            if not personas:
                run.note("No persona yet. Make one: gitmem persona add ROOT/PERSONA")
            for persona in personas:
                names = f"  ({', '.join(persona.aliases)})" if persona.aliases else ""
                run.say(f"{persona}{names}")

        run.answer(value, text)


@persona_command.command("show")
@click.argument("name", metavar="ROOT/PERSONA", type=run.PERSONA)
@run.home_option
@run.json_option
def show(name: str) -> None:
    """Show one persona: names, human, time zone, epochs."""
    with run.open_home() as home:
        memory = home.persona(name)
        manifest = memory.manifest
        epochs = memory.epochs()
        value = {
            "persona": memory.name,
            "aliases": list(manifest.aliases),
            "human": manifest.human,
            "timezone": manifest.timezone,
            "epoch": next((str(e) for e in epochs if e.current), None),
            "epochs": [epoch.as_dict() for epoch in epochs],
            "repository": memory.repository.folder,
        }

        def text() -> None:
            run.say(f"{memory.name}")
            run.say(f"  aliases     {', '.join(manifest.aliases) or '-'}")
            run.say(f"  human       {manifest.human or '-'}")
            run.say(f"  time zone   {manifest.timezone}")
            run.say(f"  epochs      {', '.join(epochs) or '-'}")
            run.say(f"  repository  {memory.repository.folder}")

        run.answer(value, text)


@run.command("epoch")
@click.argument("persona", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--next", "start_next", is_flag=True, help="Start the next one: the last name, counted up.")
def epoch_command(persona: str, name: str | None, start_next: bool) -> None:
    """List epochs, or let new leaves go to the epoch NAME from now on."""
    with run.open_home() as home:
        memory = home.persona(persona)
        if name is None and start_next:
            name = _counted_up([str(epoch) for epoch in memory.epochs()])
        if name is not None:
            memory.start_epoch(name)
            run.answer({"epoch": name, "persona": memory.name}, f"New leaves of {memory.name} go to {name}.")
            return
        epochs = memory.epochs()
        value = {"entries": [epoch.as_dict() for epoch in epochs], "next": None}

        def text() -> None:
            if not epochs:
                run.note(f"No epoch yet; the first write begins one. Or: gitmem epoch {persona} NAME")
            for epoch in epochs:
                mark = "*" if epoch.current else " "
                run.say(f"{mark} {epoch}  {epoch.texts} texts, {epoch.records} records")

        run.answer(value, text)


def _counted_up(names: list[str]) -> str:
    if not names:
        return "D1"
    match = re.fullmatch(r"(.*?)(\d+)", names[-1])
    if not match:
        raise ConflictError(
            f"the epoch {names[-1]} does not end in a number.", hint="Name the next epoch yourself."
        )
    return f"{match[1]}{int(match[2]) + 1:0{len(match[2])}d}"
