"""Made-up conversations: Chinese and English texts of about 735 bytes, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from zoneinfo import ZoneInfo

from gitmem.importers.entries import Entry

ZONE = "Asia/Shanghai"
SIZES = (200, 1_000, 10_000, 100_000)
"""Lengths in bytes of the leaves that reading is measured with."""
_MARKED_EPOCHS = 25
_MEDIAN = 735
_SPREAD = 0.8
_WORDS = (
    "the of and to in that it was for on with as at be this have from not but what all were when "
    "we there can an your which their said if do will each about how up out them then she many some "
    "so these would other into has more her two like him see time could no make than first been its "
    "who now people my made over did down only way find use may water long little very after called "
    "just where most know rain river mountain letter garden evening promise window lantern harbour"
).split()


class Texts:
    """Texts cut from a long made-up conversation, by a seeded generator."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._chinese = self._make_chinese(400_000)
        self._english = self._make_english(120_000)

    def _make_chinese(self, length: int) -> str:
        letters = [chr(0x4E00 + 5 * i) for i in range(3500)]
        weights = list(accumulate(1 / (rank + 3) for rank in range(len(letters))))
        drawn = self._random.choices(letters, cum_weights=weights, k=length)
        for at in range(9, length, 13):
            drawn[at] = "，。，！？"[at % 5]
        return "".join(drawn)

    def _make_english(self, count: int) -> str:
        weights = list(accumulate(1 / (rank + 3) for rank in range(len(_WORDS))))
        drawn = self._random.choices(_WORDS, cum_weights=weights, k=count)
        return " ".join(word + "." if at % 11 == 10 else word for at, word in enumerate(drawn))

    def of_size(self, size: int) -> bytes:
        """A text of exactly so many bytes: four in five Chinese, the others English."""
        pool, width = (self._english, 1) if self._random.random() < 0.2 else (self._chinese, 3)
        letters = -(-size // width)
        start = self._random.randrange(len(pool) - letters)
        cut = pool[start : start + letters].encode()[: size - size % width]
        return cut + b"." * (size - len(cut))

    def next(self) -> bytes:
        """A text of the usual length: lognormal, the median 735 bytes."""
        return self.of_size(max(30, int(self._random.lognormvariate(0, _SPREAD) * _MEDIAN)))


@dataclass(frozen=True, slots=True)
class Shape:
    """How many epochs, and how many leaves in each."""

    name: str
    epochs: int
    leaves: int
    daily: bool

    @property
    def total(self) -> int:
        return self.epochs * self.leaves

    @property
    def title(self) -> str:
        return f"{self.total:,} leaves in {self.epochs:,} epochs"

    def epoch(self, number: int) -> str:
        """The name of an epoch: of its day, or its number."""
        return f"D{self.begin(number):%Y%m%d}" if self.daily else f"D{number + 1}"

    def begin(self, number: int) -> datetime:
        """When an epoch begins."""
        first = datetime(2016, 11, 30, 6, tzinfo=ZoneInfo(ZONE))
        return first + timedelta(days=number if self.daily else number * 4)

    def at(self, number: int, leaf: int) -> datetime:
        """When a leaf was said."""
        return self.begin(number) + timedelta(seconds=leaf * (1800 if self.daily else 300))

    def marked(self) -> list[int]:
        """The epochs that hold a leaf of each length in `SIZES`, with and without a sidecar."""
        step = max(1, self.epochs // _MARKED_EPOCHS)
        return list(range(0, self.epochs, step))[:_MARKED_EPOCHS]

    def path(self, number: int, leaf: int) -> str:
        """The path of a leaf in the branch of its epoch."""
        return f"raw/{self.at(number, leaf):%Y%m%d-%H%M%S}.txt"

    def entries(self) -> Iterator[Entry]:
        """Every leaf, in the order of time; all but the marked bare ones belong to a turn."""
        texts, marked = Texts(), set(self.marked())
        for number in range(self.epochs):
            for leaf in range(self.leaves):
                mark = mark_of(leaf) if number in marked else None
                size, bare = mark or (0, False)
                yield Entry(
                    where=f"{number}:{leaf}",
                    data=texts.of_size(size) if size else texts.next(),
                    at=self.at(number, leaf),
                    turn_id=None if bare else f"turn-{number:04d}-{leaf // 2:04d}",
                    role=None if bare else ("user", "companion")[leaf % 2],
                    epoch=self.epoch(number),
                )


def mark_of(leaf: int) -> tuple[int, bool] | None:
    """Length, and whether it has no sidecar, of a leaf that reading is measured with."""
    place = leaf - 4
    if not 0 <= place < 2 * len(SIZES):
        return None
    return SIZES[place // 2], place % 2 == 0


def mark_at(size: int, *, bare: bool) -> int:
    """Which leaf of a marked epoch has that length; the reverse of `mark_of`."""
    return 4 + 2 * SIZES.index(size) + (not bare)
