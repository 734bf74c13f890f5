"""Timing side by side: contestants take turns, so that a busy machine is busy for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Task = Callable[[int], object]
"""Something timed; it is told the number of the round."""


@dataclass(slots=True)
class Times:
    """Seconds that one contestant took, a value for each round."""

    values: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """The value below which that share of the rounds lies."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def p50(self) -> float:
        return self.quantile(0.5)

    @property
    def p95(self) -> float:
        return self.quantile(0.95)

    @property
    def total(self) -> float:
        return sum(self.values)

    def __add__(self, other: Times) -> Times:
        return Times(self.values + other.values)


def once(task: Callable[[], object]) -> float:
    """Seconds that `task` takes."""
    began = time.perf_counter()
    task()
    return time.perf_counter() - began


def interleave(rounds: int, contestants: Mapping[str, Task]) -> dict[str, Times]:
    """Run every contestant once in each round, the first of a round changing from round to round."""
    found = {name: Times() for name in contestants}
    names: Sequence[str] = list(contestants)
    clock = time.perf_counter
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            task = contestants[name]
            began = clock()
            task(number)
            found[name].values.append(clock() - began)
    return found
