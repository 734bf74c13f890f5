"""Folders of plain text files, one leaf a file.

A file `…/EPOCH/raw/NAME.txt` keeps its epoch and its name. Any other takes its time from its
name where that begins like a leaf's, else from when the file was last changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gitmem import host, times
from gitmem.errors import GitmemError, UsageError
from gitmem.importers.entries import Entry
from gitmem.importers.report import ImportReport
from gitmem.memory import Memory
from gitmem.tracepath import check_name, is_epoch

_STARTS_WITH_TIME = re.compile(r"\d{8}-\d{6}(?=[-.])", re.ASCII)


def read(memory: Memory, place: Path, report: ImportReport) -> Iterator[Entry]:
    """The entries of a folder, or of one text file, in the order of their times."""
    found: list[Entry] = []
    files = [place] if place.is_file() else sorted(_walk(place, report))
    for path in files:
        try:
            found.append(_entry(memory, path))
        except GitmemError as fault:
            report.left_out.append((str(path), fault.message))
    return iter(sorted(found, key=lambda entry: (entry.at, entry.name or "", entry.where)))


def _walk(folder: Path, report: ImportReport) -> Iterator[Path]:
    for name in host.list_folder(str(folder)):
        path = folder / name
        if name.startswith("."):
            continue
        if path.is_symlink():
            report.left_out.append((str(path), "a symbolic link; only plain files are read."))
        elif path.is_dir():
            yield from _walk(path, report)
        elif not path.is_file():
            report.left_out.append((str(path), "not a plain file."))
        elif path.suffix == ".txt":
            yield path
        else:
            report.left_out.append((str(path), "not a .txt file."))


def _entry(memory: Memory, path: Path) -> Entry:
    data = host.read_bytes(str(path))
    if data is None:
        raise UsageError("the file is gone.")
    memory.check_text(data)
    if path.parent.name == "raw" and is_epoch(path.parent.parent.name):
        check_name("raw", path.name)
        at = times.from_name(path.name[:15], memory.zone)
        return Entry(str(path), data, at, name=path.name, epoch=path.parent.parent.name)
    if _STARTS_WITH_TIME.match(path.name):
        check_name("raw", path.name)
        return Entry(str(path), data, times.from_name(path.name[:15], memory.zone), name=path.name)
    changed = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    at = times.parse(changed, memory.zone)
    # The name is fixed by time and file name, so that the same file again is the same leaf.
    return Entry(str(path), data, at, name=f"{times.to_name(at)}-{_label(path.stem)}.txt")


def _label(stem: str) -> str:
    """The file's name as a label; one that a label cannot hold is told apart by its hash."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_")[:40]
    if plain == stem:
        return plain
    mark = hashlib.sha256(stem.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{plain}-{mark}" if plain else f"f-{mark}"
