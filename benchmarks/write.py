"""How long one durable write takes, beside the same commit made with git's plumbing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from benchmarks.corpus import Shape, Texts
from benchmarks.homes import REPOSITORY, Workshop, opened, say
from benchmarks.plumbing import Plumbing
from benchmarks.table import Row, Table, span, times
from benchmarks.timing import Times, interleave

NAME = "write"
_LIMIT = 0.006
_SHARE = 1 / 5


def run(shop: Workshop) -> Table:
    """Answer the question."""
    table = Table(
        "write: one durable leaf",
        [
            "`memory.write` against `git hash-object`, `update-index`, `write-tree`, `commit-tree` and "
            "`update-ref` with `core.fsync=all` and an index that is kept, turn by turn, the same "
            "text under the same name, each in its own copy of the same repository.",
        ],
    )
    wide, daily = shop.sizes.wide, shop.sizes.daily
    for shape, maintained in ((wide, False), (daily, False), (daily, True)):
        source = shop.maintained(shape) if maintained else shop.built(shape)
        for in_turn in (False, True):
            say(f"write: {shape.title}{', maintained' if maintained else ''}")
            table.rows += _measure(shop, source, shape, maintained=maintained, in_turn=in_turn)
    return table


def _measure(shop: Workshop, source: Path, shape: Shape, *, maintained: bool, in_turn: bool) -> list[Row]:
    with shop.scratch(source) as ours, shop.scratch(source) as theirs:
        found = _race(ours, theirs, shape, shop.sizes.rounds, in_turn=in_turn)
    where = f"{shape.leaves:,} leaves in its epoch, {shape.epochs:,} epochs"
    more = (", with turn and role" if in_turn else "") + (", after `maintain`" if maintained else "")
    mine, git = found["gitmem"], found["git"]
    ratio = mine.p50 / git.p50
    reach = "≤ 6 ms and ≤ 1/5"
    return [
        Row(
            f"p50, {where}{more}",
            span(mine.p50),
            span(git.p50),
            times(mine.p50, git.p50),
            reach,
            mine.p50 <= _LIMIT and ratio <= _SHARE,
        ),
        Row(f"p95, {where}{more}", span(mine.p95), span(git.p95), times(mine.p95, git.p95)),
    ]


def _race(ours: Path, theirs: Path, shape: Shape, rounds: int, *, in_turn: bool) -> dict[str, Times]:
    """Both write to the last epoch, a leaf a minute after its last one."""
    texts = _texts(rounds)
    last = shape.epochs - 1
    epoch = shape.epoch(last)
    first = shape.at(last, shape.leaves - 1)
    moments = [first + timedelta(seconds=60 * (n + 1)) for n in range(rounds)]
    with opened(ours) as memory:
        plumbing = Plumbing(theirs / REPOSITORY, epoch)

        def write(n: int) -> None:
            turn = {"turn_id": f"new-{n}", "role": "user"} if in_turn else {}
            memory.write(texts[n], epoch=epoch, at=moments[n], **turn)

        def commit(n: int) -> None:
            name = f"{moments[n]:%Y%m%d-%H%M%S}"
            files = {f"raw/{name}.txt": texts[n]}
            if in_turn:
                files[f"meta/raw/{name}.yaml"] = b"turn_id: new-%d\nrole: user\n" % n
            plumbing.commit(files, f"write raw/{name}.txt\n\nLeaf: raw/{name}.txt")

        return interleave(rounds, {"gitmem": write, "git": commit})


def _texts(count: int) -> list[bytes]:
    texts = Texts(seed=11)
    return [texts.next() for _ in range(count)]
