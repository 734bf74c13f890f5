"""How long it takes to bring a persona from another repository, beside `git fetch` of the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.corpus import Shape
from benchmarks.homes import PERSONA, REPOSITORY, Workshop, clock, say
from benchmarks.plumbing import environment
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Times, once
from gitmem import Home
from gitmem.sync import add_remote, sync

NAME = "sync"
_SHAPES = (Shape("sync-wide", 10, 1000, daily=False), Shape("sync-daily", 370, 27, daily=True))
_ROUNDS = 3


def run(shop: Workshop) -> Table:
    """Answer the question."""
    table = Table(
        "sync: 10,000 leaves from another repository",
        [
            "Both over a path. The first sync takes a persona into an empty home, ready to read; `git fetch` "
            "brings all branches into an empty bare repository. The next one brings one new leaf.",
        ],
    )
    for shape in _SHAPES:
        say(f"sync: {shape.title}")
        table.rows += _measure(shop, shape)
    return table


def _measure(shop: Workshop, shape: Shape) -> list[Row]:
    source = shop.built(shape)
    ours, theirs = Times(), Times()
    for _ in range(_ROUNDS):
        with shop.scratch() as folder, Home.init(folder, clock=clock) as home:
            ours.values.append(once(lambda: add_remote(home, PERSONA, str(source / REPOSITORY))))
        with shop.scratch() as folder:
            _git(folder.parent, "init", "-q", "--bare", str(folder))
            theirs.values.append(once(lambda: _fetch(folder, source / REPOSITORY)))
    first = _row(f"first sync, {shape.epochs:,} epochs", ours, theirs)
    return [first, _next(shop, shape)]


def _next(shop: Workshop, shape: Shape) -> Row:
    ours, theirs = Times(), Times()
    with (
        shop.scratch(shop.built(shape)) as source,
        shop.scratch() as folder,
        shop.scratch() as plain,
        Home.init(folder, clock=clock) as home,
        Home(source, clock=clock) as there,
    ):
        add_remote(home, PERSONA, str(source / REPOSITORY))
        _git(plain.parent, "init", "-q", "--bare", str(plain))
        _fetch(plain, source / REPOSITORY)
        for number in range(_ROUNDS):
            there.persona(PERSONA).write(f"and one more {number}")
            ours.values.append(once(lambda: sync(home, PERSONA)))
            theirs.values.append(once(lambda: _fetch(plain, source / REPOSITORY)))
    return _row(f"one new leaf, {shape.epochs:,} epochs", ours, theirs)


def _row(what: str, ours: Times, theirs: Times) -> Row:
    ratio = ours.p50 / theirs.p50
    return Row(what, span(ours.p50), span(theirs.p50), times(ours.p50, theirs.p50), "≤ 3 x", ratio <= 3)


def _fetch(folder: Path, source: Path) -> None:
    _git(folder, "fetch", "-q", str(source), "+refs/heads/*:refs/heads/*")


def _git(folder: Path, *arguments: str) -> None:
    command = ["git", "-C", str(folder), *arguments]
    subprocess.run(command, env=environment(), capture_output=True, check=True)
