"""How fast many leaves become commits, beside `git fast-import` making the very same commits."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.corpus import Shape
from benchmarks.homes import PERSONA, REPOSITORY, Workshop, new_home, opened, say, size_of
from benchmarks.plumbing import environment, git
from benchmarks.table import Row, Table, megabytes, times
from benchmarks.timing import Times, once
from gitmem import Home
from gitmem.importers.entries import Entry, take
from gitmem.importers.report import ImportReport

NAME = "import"
_SLICES = 10


def run(shop: Workshop) -> Table:
    """Answer the question."""
    shape = shop.sizes.wide
    table = Table(
        "import: leaves as commits, a commit each",
        [
            "Text and sidecar with turn and role in each commit. `gitmem.importers.entries.take` "
            "(which also checks every text, looks for turns that are there already and fills the "
            "catalog) against `git fast-import` fed a stream made beforehand by `git fast-export`. "
            f"They take turns, a tenth of the epochs at a time; afterwards all {shape.epochs} branches "
            "are compared and have the same commit ids.",
        ],
    )
    source = shop.built(shape)
    with shop.scratch() as folder:
        folder.mkdir()
        ours, theirs = _race(source / REPOSITORY, folder, shape)
        _compare(folder, shape)
        sizes = size_of(folder / "home" / REPOSITORY), size_of(folder / "git")
    rates = shape.total / ours.total, shape.total / theirs.total
    table.rows = [
        Row(
            f"commits a second, {shape.title}",
            f"{rates[0]:,.0f}",
            f"{rates[1]:,.0f}",
            times(*rates),
            "≥ 1 x",
            rates[0] >= rates[1],
        ),
        Row("size on disk", megabytes(sizes[0]), megabytes(sizes[1]), times(*sizes)),
    ]
    return table


def _slices(shape: Shape) -> Iterator[tuple[list[str], list[Entry]]]:
    """Names and entries of a tenth of the epochs at a time."""
    names = [shape.epoch(number) for number in range(shape.epochs)]
    step = shape.epochs // _SLICES
    entries: dict[str, list[Entry]] = {}
    for entry in shape.entries():
        entries.setdefault(entry.epoch or "", []).append(entry)
    for start in range(0, shape.epochs, step):
        part = names[start : start + step]
        yield part, [entry for name in part for entry in entries[name]]


def _race(source: Path, folder: Path, shape: Shape) -> tuple[Times, Times]:
    bare = folder / "git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], env=environment(), check=True)
    ours, theirs = Times(), Times()
    with new_home(folder / "home") as home:
        for number, (names, entries) in enumerate(_slices(shape)):
            say(f"import: part {number + 1} of {_SLICES}")
            stream = _export(source, folder / "stream", names)
            turns = [lambda e=entries: _take(home, e), lambda s=stream: _fast_import(bare, s)]
            for place in (number % 2, 1 - number % 2):
                (ours, theirs)[place].values.append(once(turns[place]))
    return ours, theirs


def _export(source: Path, target: Path, names: list[str]) -> Path:
    """The commits of these branches as a stream for fast-import."""
    refs = "".join(f"refs/heads/{name}\n" for name in names)
    with target.open("wb") as stream:
        subprocess.run(
            ["git", "--git-dir", str(source), "fast-export", "--stdin"],
            input=refs.encode(),
            stdout=stream,
            env=environment(),
            check=True,
        )
    return target


def _take(home: Home, entries: list[Entry]) -> None:
    report = take(home.persona(PERSONA), entries, "day", ImportReport())
    if report.taken != len(entries):
        raise RuntimeError(f"{report.taken} of {len(entries)} leaves were imported")


def _fast_import(bare: Path, stream: Path) -> None:
    with stream.open("rb") as data:
        subprocess.run(
            ["git", "-c", "core.fsync=all", "--git-dir", str(bare), "fast-import", "--quiet"],
            stdin=data,
            env=environment(),
            check=True,
        )


def _compare(folder: Path, shape: Shape) -> None:
    """Both must have come to the same commits, or the race says nothing."""
    with opened(folder / "home") as memory:
        heads = memory.repository.refs.heads()
    lines = git(folder / "git", "for-each-ref", "--format=%(objectname) %(refname:short)").splitlines()
    there = {name: oid for oid, name in (line.split() for line in lines)}
    names = [shape.epoch(number) for number in range(shape.epochs)]
    wrong = [name for name in names if heads[name].hex() != there.get(name)]
    if wrong:
        raise RuntimeError(f"the commits of {len(wrong)} epochs differ, of {wrong[0]} for one")
