"""How long forgetting takes: index, every object, and the proof, beside git-filter-repo."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import Shape
from benchmarks.homes import PERSONA, REPOSITORY, Workshop, opened, say
from benchmarks.plumbing import environment, git
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Times, once
from gitmem import Memory

NAME = "release"
_LIMIT = 1.0


def run(shop: Workshop) -> Table:
    """Answer the question."""
    wide, daily, each = shop.sizes.wide, shop.sizes.daily, shop.sizes.releases
    table = Table(
        "release: forgetting for good",
        [
            "`memory.release(path)`: tombstone, rewritten epoch, objects deleted, catalog, and the proof "
            f"by a second reader; the median of {each}, each in another epoch. "
            "`git filter-repo --invert-paths --path … --force` does the same to a copy of the same "
            "repository (its `.keep` files removed, or it would delete nothing), once, between two "
            "of the releases; it proves nothing. early, middle, late: the leaf's place in its epoch.",
        ],
    )
    say(f"release: {wide.title}")
    table.rows += _wide(shop, wide)
    for maintained in (False, True):
        say(f"release: {daily.title}{', maintained' if maintained else ''}")
        table.rows.append(_daily(shop, daily, maintained=maintained))
    return table


def _wide(shop: Workshop, shape: Shape) -> list[Row]:
    source = shop.built(shape)
    epochs = iter(_spread(shape, 3 * shop.sizes.releases + 2))
    places = {"early": 20, "middle": shape.leaves // 2, "late": shape.leaves - 20}
    found = {name: Times() for name in places}
    with shop.scratch(source) as home, opened(home) as memory:
        first = _time(memory, shape, next(epochs), [shape.leaves // 2])
        rewritten = _filter_repo(shop, source, shape)
        for _ in range(shop.sizes.releases):
            for name, leaf in places.items():
                found[name].values.append(_time(memory, shape, next(epochs), [leaf]))
        many = _time(memory, shape, next(epochs), range(100, 200))
        open_epoch = _time(memory, shape, shape.epochs - 1, [shape.leaves // 2])
        _check(home, memory, shape)
    label = f"one of {shape.total:,} in {shape.epochs:,} epochs"
    rows = [_row(f"{label}, {name}", kind.p50, rewritten) for name, kind in found.items()]
    return [
        *rows,
        _row(f"{label}, in the newest epoch", open_epoch, rewritten),
        _row(f"{label}, the first in a process", first, rewritten),
        Row("100 of one epoch at once", span(many)),
    ]


def _daily(shop: Workshop, shape: Shape, *, maintained: bool) -> Row:
    source = shop.maintained(shape) if maintained else shop.built(shape)
    with shop.scratch(source) as home, opened(home) as memory:
        found = Times([_time(memory, shape, n, [13]) for n in _spread(shape, shop.sizes.releases)])
        _check(home, memory, shape)
    more = ", after `maintain`" if maintained else ""
    return _row(f"one of {shape.total:,} in {shape.epochs:,} epochs{more}", found.p50, None)


def _row(label: str, seconds: float, rewritten: float | None) -> Row:
    other = (span(rewritten), times(seconds, rewritten)) if rewritten else ("", "")
    return Row(label, span(seconds), *other, "≤ 1 s", seconds <= _LIMIT)


def _spread(shape: Shape, count: int) -> list[int]:
    """Epochs far from each other, the last one not among them."""
    return [number * (shape.epochs - 1) // count for number in range(count)]


def _time(memory: Memory, shape: Shape, number: int, leaves: Sequence[int]) -> float:
    epoch = shape.epoch(number)
    paths = [f"{PERSONA}/{epoch}/{shape.path(number, leaf)}" for leaf in leaves]
    memory.trace(paths[0])
    seconds = once(lambda: memory.release(*paths))
    if memory.trace(paths[0]).status != "released":
        raise RuntimeError(f"{paths[0]} was not released")
    return seconds


def _filter_repo(shop: Workshop, source: Path, shape: Shape) -> float:
    """Seconds that git-filter-repo takes for a leaf in the middle of the memory."""
    say("release: git filter-repo")
    number = shape.epochs // 2
    path = shape.path(number, shape.leaves // 2)
    sidecar = path.replace("raw/", "meta/raw/").replace(".txt", ".yaml")
    with shop.scratch() as copy:
        shutil.copytree(source / REPOSITORY, copy)
        for keep in copy.glob("objects/pack/*.keep"):
            keep.unlink()
        blob = git(copy, "rev-parse", f"{shape.epoch(number)}:{path}")
        seconds = once(lambda: _run_filter_repo(copy, [path, sidecar]))
        found = git(copy, "cat-file", "--batch-check", data=f"{blob}\n".encode())
        if not found.endswith("missing"):
            raise RuntimeError("git filter-repo left the text in the repository")
    return seconds


def _run_filter_repo(copy: Path, paths: Sequence[str]) -> None:
    chosen = [word for path in paths for word in ("--path", path)]
    subprocess.run(
        [sys.executable, "-m", "git_filter_repo", "--invert-paths", *chosen, "--force", "--quiet"],
        cwd=copy,
        env=environment(),
        capture_output=True,
        check=True,
    )


def _check(home: Path, memory: Memory, shape: Shape) -> None:
    """The repository must still be whole."""
    git(home / REPOSITORY, "fsck", "--connectivity-only", "--no-dangling")
    if len(memory.epochs()) != shape.epochs:
        raise RuntimeError("a release lost an epoch")
