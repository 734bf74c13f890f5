"""`gitmem init`."""

from __future__ import annotations

from pathlib import Path

import click

from gitmem.cli import run
from gitmem.errors import UsageError
from gitmem.home import Home


@run.command("init")
@click.argument("folder", metavar="[DIR]", required=False)
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Fill it from plain files, such as sample-repo or an export.",
)
def init_command(folder: str | None, source: Path | None) -> None:
    """Make a home in DIR (or in the folder that --home, GITMEM_HOME or the platform names).

    A home that is there already is left as it is. With --from the folder must be new or empty.
    """
    if folder == "":
        raise UsageError("the name of the folder is empty.", hint="Name one, or leave it out.")
    target = (Path(folder) if folder else run.home_path()).absolute()
    if source is None:
        with Home.init(target) as home:
            count = len(home.personas())
        answer = {"home": str(target), "personas": count}
        run.answer(
            answer, f"The home {target} is ready. Next: gitmem --home {target} persona add ROOT/PERSONA"
        )
        return
    from gitmem.importers.stored import init_from

    with run.progress("Reading") as progress:
        report = init_from(target, source, progress=progress)
    value = {"home": str(target), **report.as_dict()}
    names = sorted(report.personas)
    ready = f"The home {target} is ready: {report.taken} leaves of {', '.join(names)}."
    run.answer(value, f"{ready}\nNext: gitmem --home {target} timeline {names[0]}")
