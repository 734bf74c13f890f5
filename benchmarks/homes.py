"""Homes to measure on: built once by a bulk import, copied for whoever changes them."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.corpus import ZONE, Shape
from gitmem import Home, Memory
from gitmem.importers.entries import take
from gitmem.importers.report import ImportReport
from gitmem.maintain import maintain

PERSONA = "YM001/ZY001"
REPOSITORY = "ym001/zy001.git"
CLOCK = datetime(2026, 11, 30, 12, tzinfo=UTC)


def clock() -> datetime:
    """A present that stands still, so that the same import makes the same commits."""
    return CLOCK


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a run is."""

    wide: Shape
    """Long epochs."""
    daily: Shape
    """An epoch for each day."""
    rounds: int
    """Rounds of a measurement of milliseconds."""
    releases: int
    """Releases of each kind."""

    @classmethod
    def full(cls) -> Sizes:
        return cls(Shape("wide", 100, 1000, daily=False), Shape("daily", 3650, 27, daily=True), 200, 5)

    @classmethod
    def quick(cls) -> Sizes:
        return cls(Shape("wide", 10, 1000, daily=False), Shape("daily", 150, 27, daily=True), 25, 2)


def say(text: str) -> None:
    """A line about progress, on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Workshop:
    """The temporary folder of a run, and the homes in it."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes

    def built(self, shape: Shape) -> Path:
        """The home of that shape; it is shared, so it must not be changed."""
        home = self.folder / shape.name
        if not home.exists():
            say(f"building {shape.title}")
            build(home, shape)
        return home

    def maintained(self, shape: Shape) -> Path:
        """The same home after `gitmem maintain`."""
        home = self.folder / f"{shape.name}-maintained"
        if not home.exists():
            shutil.copytree(self.built(shape), home)
            say(f"maintaining {shape.title}")
            with Home(home) as opened:
                maintain(opened.persona(PERSONA))
        return home

    @contextlib.contextmanager
    def scratch(self, source: Path | None = None) -> Iterator[Path]:
        """A folder that is removed afterwards; a copy of `source` where one is given."""
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            target = Path(name) / "it"
            if source is not None:
                shutil.copytree(source, target)
            yield target


@contextlib.contextmanager
def opened(home: Path) -> Iterator[Memory]:
    """The memory in a home."""
    with Home(home, clock=clock) as found:
        yield found.persona(PERSONA)


def new_home(folder: Path) -> Home:
    """An empty home with the persona in it."""
    home = Home.init(folder, clock=clock)
    home.add_persona(PERSONA, timezone=ZONE)
    return home


def build(folder: Path, shape: Shape) -> None:
    """Import every leaf of a shape into a new home."""
    with new_home(folder) as home:
        report = take(home.persona(PERSONA), shape.entries(), "day", ImportReport())
        if report.taken != shape.total:
            raise RuntimeError(f"{report.taken} of {shape.total} leaves came in: {report.left_out[:3]}")


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, as the disk counts them."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
