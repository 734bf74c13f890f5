"""`gitmem history` and `timeline`."""

from __future__ import annotations

import click

from gitmem.cli import run


@run.command("history")
@click.argument("path", metavar="PATH")
def history_command(path: str) -> None:
    """List the commits that touched a leaf, newest first."""
    with run.open_memory(path) as (memory, target):
        entries = memory.history(target)
    value = {"entries": [entry.as_dict() for entry in entries], "next": None}

    def text() -> None:
        for entry in entries:
            run.say(f"{entry.commit[:12]}  {entry.ts}  {entry.author}  {entry.subject}")

    run.answer(value, text)
    if not entries:
        run.note(f"No commit touched {target}.")
        click.get_current_context().exit(1)


@run.command("timeline")
@click.argument("persona", metavar="ROOT/PERSONA", type=run.PERSONA)
@click.option("--since", metavar="TIME", help="From this time or day on.")
@click.option("--until", metavar="TIME", help="Before this time; a day without a time belongs to it whole.")
@click.option("--limit", type=int, default=50, show_default=True, help="Entries on a page, 1 to 1000.")
@click.option("--before", metavar="CURSOR", help="Go on after the page before: its `next`.")
def timeline_command(
    persona: str, since: str | None, until: str | None, limit: int, before: str | None
) -> None:
    """List a persona's living leaves, newest first."""
    with run.open_home() as home:
        page = home.persona(persona).timeline(since, until, limit, before)
    value = {"entries": [entry.as_dict() for entry in page.entries], "next": page.next}

    def text() -> None:
        for entry in page.entries:
            who = entry.role or entry.kind
            gist = f"  {entry.summary}" if entry.summary else ""
            run.say(f"{entry.ts}  {entry.status:<8}  {who:<9}  {entry.trace_path}{gist}")
        if not page.entries:
            run.note("Nothing here yet.")
        if page.next:
            run.note(f"More: --before {page.next}")

    run.answer(value, text)
