"""The page docs/performance.md: its measured part is written by the program, the rest by hand."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pygit2

from benchmarks.table import Table

_BEGIN = "<!-- measured: begin -->"
_END = "<!-- measured: end -->"


def measured(tables: Sequence[Table], *, command: str) -> str:
    """The measured part, as Markdown: the machine, the tables, what was reached and what not."""
    rows = [row for table in tables for row in table.rows if row.reached is not None]
    missed = [
        f"- {table.title.partition(':')[0]}: {row.what}: {row.ours}, {row.ratio} (to reach: {row.reach})"
        for table in tables
        for row in table.rows
        if row.reached is False
    ]
    verdict = f"{len(rows) - len(missed)} of {len(rows)} numbers were reached."
    if missed:
        verdict += " Not reached:\n\n" + "\n".join(missed)
    head = f"Measured with `{command}` on {machine()}."
    if "--quick" in command:
        head += " These are small sizes, not those that the numbers to reach are meant for."
    return "\n\n".join([head, verdict, *(table.markdown() for table in tables)])


def update(page: Path, text: str) -> None:
    """Put the measured part into the page, between its two marks."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit(f"{page} lacks the marks {_BEGIN} and {_END}.")
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")


def machine() -> str:
    """What the numbers were measured on."""
    git = subprocess.run(["git", "--version"], capture_output=True, check=True, text=True)
    return (
        f"{os.cpu_count()} cores of {_processor()}, {platform.system()}, "
        f"Python {platform.python_version()}, {git.stdout.strip()}, "
        f"pygit2 {importlib.metadata.version('pygit2')} with libgit2 {pygit2.LIBGIT2_VERSION}, "
        f"on {time.strftime('%Y-%m-%d')}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "unknown")
