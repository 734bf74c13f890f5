"""How long `gitmem trace PATH` takes as a command, from start to end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from benchmarks.corpus import Shape
from benchmarks.homes import PERSONA, REPOSITORY, Workshop, say
from benchmarks.plumbing import environment
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Task, interleave

NAME = "command"
_LIMIT = 0.25


def run(shop: Workshop) -> Table:
    """Answer the question."""
    table = Table(
        "command: one leaf on the command line",
        [
            "Whole processes, started turn by turn: `gitmem trace PATH`, `git show REF:PATH`, "
            '`python -c pass`, `python -c "import gitmem"`. The ratio is to `git show`, or to '
            "`python -c pass` where that is named.",
        ],
    )
    for shape in (shop.sizes.wide, shop.sizes.daily):
        say(f"command: {shape.title}")
        table.rows += _measure(shop, shape)
    return table


def _measure(shop: Workshop, shape: Shape) -> list[Row]:
    home = shop.built(shape)
    number, leaf = shape.epochs // 2, shape.leaves // 2
    epoch, path = shape.epoch(number), shape.path(number, leaf)
    python = sys.executable
    gitmem = [python, "-m", "gitmem", "--home", str(home)]
    show = ["git", "--git-dir", str(home / REPOSITORY), "show", f"{epoch}:{path}"]
    contestants = {
        "trace": _starter([*gitmem, "trace", f"{PERSONA}/{epoch}/{path}"]),
        "show": _starter(show),
        "python": _starter([python, "-c", "pass"]),
        "import": _starter([python, "-c", "import gitmem"]),
    }
    for task in contestants.values():
        task(0)
    found = interleave(max(10, shop.sizes.rounds // 4), contestants)
    trace, git, bare, load = (found[name] for name in contestants)
    where = f", {shape.epochs:,} epochs"

    def row(what: str, ours: float, theirs: float) -> tuple[str, str, str, str]:
        return what + where, span(ours), span(theirs), times(ours, theirs)

    return [
        Row(*row("p50", trace.p50, git.p50), "≤ 250 ms", trace.p50 <= _LIMIT),
        Row(*row("p95", trace.p95, git.p95)),
        Row(*row("p50 beside `python -c pass`", trace.p50, bare.p50)),
        Row(*row("`import gitmem` beside `pass`, p50", load.p50, bare.p50)),
    ]


def _starter(command: Sequence[str]) -> Task:
    env = environment()

    def start(_: int) -> None:
        subprocess.run(command, capture_output=True, env=env, check=True, close_fds=False)

    return start
