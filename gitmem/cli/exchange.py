"""`gitmem import` and `export`."""

from __future__ import annotations

from pathlib import Path

import click

from gitmem import host, layout
from gitmem.cli import run
from gitmem.errors import UsageError
from gitmem.importers.report import ImportReport
from gitmem.memory import Memory


@run.command("import")
@click.argument("source", metavar="FILE|DIR", type=click.Path(path_type=Path))
@click.option(
    "--persona",
    metavar="ROOT/PERSONA",
    type=run.PERSONA,
    help="Whose memory it is. Not for the sample layout, which says so itself.",
)
@click.option(
    "--epoch-by",
    metavar="day|month|NAME",
    default="month",
    show_default=True,
    help="Which epochs the leaves go to.",
)
def import_command(source: Path, persona: str | None, epoch_by: str) -> None:
    """Import turns.jsonl, a text file, a folder of text files, or an exported folder.

    The same import again adds nothing; released leaves never come back. A folder that holds
    EPOCH/raw/NAME.txt keeps epochs and names.
    """
    if not source.exists():
        raise UsageError(f"there is no file or folder {source}.")
    with run.open_home() as home, run.progress("Importing") as progress:
        report = ImportReport()
        if source.is_dir() and layout.is_layout(source):
            if persona is not None:
                raise UsageError(f"{source} names its personas itself; leave --persona out.")
            from gitmem.importers import stored

            stored.take_all(home, layout.read(source, home.settings.max_leaf_bytes), report, progress)
        elif persona is None:
            raise UsageError("whose memory is it?", hint="Add --persona ROOT/PERSONA.")
        else:
            _take(home.persona(persona), source, epoch_by, report, progress)
    run.answer(report.as_dict(), lambda: _print_report(report))


def _take(memory: Memory, source: Path, epoch_by: str, report: ImportReport, progress: run.Progress) -> None:
    from gitmem.importers import entries, texts, turns

    if source.is_dir() or source.suffix == ".txt":
        found = texts.read(memory, source, report)
    elif source.suffix == ".jsonl":
        found = turns.read(memory, host.read_bytes(str(source)) or b"", str(source), report)
    else:
        raise UsageError(
            f"{source} is of no known format: a .jsonl file of turns, .txt files, or an exported folder."
        )
    entries.take(memory, found, epoch_by, report, progress)


def _print_report(report: ImportReport) -> None:
    where = (
        f" into {', '.join(sorted(report.epochs))}"
        if 0 < len(report.epochs) <= 5
        else f" into {len(report.epochs)} epochs"
    )
    run.say(
        f"{report.taken} leaves taken{where if report.taken else ''}, {report.present} were there already."
    )
    if report.released:
        run.say(f"{len(report.released)} left out because they were released:")
        for line in report.released[:20]:
            run.say(f"  {line}")
    if report.left_out:
        run.say(f"{len(report.left_out)} left out:")
        for where, why in report.left_out[:20]:
            run.say(f"  {where}: {why}")
        if len(report.left_out) > 20:
            run.say(f"  and {len(report.left_out) - 20} more; --json lists all.")


@run.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def export_command(folder: Path) -> None:
    """Write every persona as plain files into a new folder; gitmem init --from reads them.

    Released leaves are never exported. A later release names this folder in its report.
    """
    from gitmem.export import export

    with run.open_home() as home, run.progress("Exporting") as progress:
        done = export(home, folder, progress)
    value = {
        "folder": done.folder,
        "personas": done.personas,
        "leaves": done.leaves,
        "released": done.released,
        "skipped": list(done.skipped),
    }

    def text() -> None:
        run.say(f"{done.leaves} leaves of {done.personas} personas are in {done.folder}.")
        for path in done.skipped:
            run.say(f"left out, not a leaf by its name: {path!r}")

    run.answer(value, text)
