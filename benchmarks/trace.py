"""How long reading a leaf by its path takes, beside reading a plain file with the same text."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.corpus import SIZES, Shape, mark_at
from benchmarks.homes import PERSONA, Workshop, opened, say
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Times
from gitmem import Memory

NAME = "trace"
_LIMIT = 3.0


def run(shop: Workshop) -> Table:
    """Answer the question."""
    table = Table(
        "trace: reading by path, warm",
        [
            '`memory.trace(path)` against `open(path, encoding="utf-8", newline="").read()` of a file '
            "with the same text. Every leaf and its file were read before; then they take turns, "
            "leaf by leaf, in random order over up to 25 epochs.",
        ],
    )
    for shape in (shop.sizes.wide, shop.sizes.daily):
        say(f"trace: {shape.title}")
        with opened(shop.built(shape)) as memory, shop.scratch() as folder:
            folder.mkdir()
            for size in SIZES:
                for bare in (True, False):
                    table.rows.append(_measure(memory, folder, shape, size, bare=bare))
    return table


def _measure(memory: Memory, folder: Path, shape: Shape, size: int, *, bare: bool) -> Row:
    leaf = mark_at(size, bare=bare)
    pairs: list[tuple[str, str]] = []
    for number in shape.marked():
        path = f"{PERSONA}/{shape.epoch(number)}/{shape.path(number, leaf)}"
        file = folder / f"{number}-{leaf}.txt"
        text = memory.trace(path).content
        if text is None or len(text.encode()) != size:
            raise RuntimeError(f"{path} does not hold {size} bytes")
        file.write_bytes(text.encode())
        pairs.append((path, str(file)))
    ours, theirs = _race(memory, pairs, rounds=3000 // len(pairs))
    ratio = ours.p50 / theirs.p50
    label = f"{size:,} bytes, {'no' if bare else 'with'} sidecar, {shape.epochs:,} epochs"
    row = (label, span(ours.p50), span(theirs.p50), times(ours.p50, theirs.p50))
    return Row(*row, "≤ 3 x", ratio <= _LIMIT)


def _race(memory: Memory, pairs: list[tuple[str, str]], rounds: int) -> tuple[Times, Times]:
    ours, theirs = Times(), Times()
    clock = time.perf_counter
    for path, file in _shuffled(pairs, rounds):
        began = clock()
        memory.trace(path)
        between = clock()
        with open(file, encoding="utf-8", newline="") as plain:
            plain.read()
        ended = clock()
        ours.values.append(between - began)
        theirs.values.append(ended - between)
    return ours, theirs


def _shuffled(pairs: list[tuple[str, str]], rounds: int) -> Iterable[tuple[str, str]]:
    order = random.Random(5)
    for _ in range(rounds):
        yield from order.sample(pairs, len(pairs))
