"""`python -m benchmarks`: measure everything, or one question, and print tables."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pygit2

from benchmarks import command, imports, release, trace, write
from benchmarks.homes import Sizes, Workshop, say
from benchmarks.table import Table

QUESTIONS: dict[str, Callable[[Workshop], Table]] = {
    module.NAME: module.run for module in (write, trace, imports, release, command)
}


def main() -> None:
    """Run the questions that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument("--only", choices=sorted(QUESTIONS), action="append", help="may be repeated")
    parser.add_argument("--folder", help="where the temporary folder is made")
    options = parser.parse_args()
    sizes = Sizes.quick() if options.quick else Sizes.full()
    began = time.monotonic()
    tables = []
    with tempfile.TemporaryDirectory(prefix="gitmem-benchmarks-", dir=options.folder) as folder:
        shop = Workshop(Path(folder), sizes)
        for name, question in QUESTIONS.items():
            if options.only is None or name in options.only:
                tables.append(question(shop))
                print(tables[-1].text(), end="\n\n", flush=True)
    say(f"done in {time.monotonic() - began:.0f} s")
    if not options.quick:
        print("\n\n".join([machine(), *(table.markdown() for table in tables)]))


def machine() -> str:
    """What the numbers were measured on."""
    git = subprocess.run(["git", "--version"], capture_output=True, check=True, text=True)
    return (
        f"{os.cpu_count()} cores of {_processor()}, {platform.system()}; "
        f"Python {platform.python_version()}, {git.stdout.strip()}, "
        f"pygit2 {importlib.metadata.version('pygit2')} with libgit2 {pygit2.LIBGIT2_VERSION}; "
        f"{time.strftime('%Y-%m-%d')}."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
