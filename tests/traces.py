"""Looking for a text in everything a repository or a home holds, by three independent readers."""

from __future__ import annotations

import os
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

from dulwich.repo import Repo

_RUN = 12


def runs_of(text: str | bytes, elsewhere: bytes = b"") -> set[bytes]:
    """Every 12-byte run of a text that stands nowhere in `elsewhere`."""
    data = text.encode() if isinstance(text, str) else text
    found = {data[i : i + _RUN] for i in range(max(1, len(data) - _RUN + 1))}
    return {run for run in found if run not in elsewhere}


def by_dulwich(repository: Path) -> Iterator[tuple[str, bytes]]:
    """Every object, enumerated by dulwich."""
    with Repo(str(repository)) as repo:
        for name in repo.object_store:
            yield f"dulwich {name.decode()}", repo.object_store[name].as_raw_string()


def by_git(repository: Path) -> Iterator[tuple[str, bytes]]:
    """Every object, enumerated by git."""
    command = ["git", "--git-dir", str(repository), "cat-file", "--batch-all-objects", "--batch", "--buffer"]
    yield "git cat-file", subprocess.run(command, capture_output=True, check=True).stdout


def raw_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file of a folder as it is, and every zlib stream in it inflated."""
    for where, _, names in os.walk(folder):
        for name in names:
            data = (Path(where) / name).read_bytes()
            yield f"{where}/{name}", data
            for start, inflated in streams(data):
                yield f"{where}/{name}@{start}", inflated


def streams(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every zlib stream in some bytes: a loose object is one, a pack holds many."""
    for start in range(len(data) - 1):
        if data[start] & 0x0F == 8 and (data[start] << 8 | data[start + 1]) % 31 == 0:
            inflater = zlib.decompressobj()
            try:
                out = inflater.decompress(data[start:])
            except zlib.error:
                continue
            if out:
                yield start, out


def found_in(home: Path, runs: set[bytes]) -> list[str]:
    """Places of a home that hold one of the runs."""
    assert runs, "the text has no run of its own; the search would find nothing"
    places = []
    for repository in home.glob("*/*.git"):
        for where, data in (*by_dulwich(repository), *by_git(repository)):
            places += [f"{repository.name}: {where}"] if any(run in data for run in runs) else []
    for where, data in raw_files(home):
        places += [where] if any(run in data for run in runs) else []
    return places
