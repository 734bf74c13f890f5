"""`python -m benchmarks`: measure everything, or one question, and print tables."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import command, imports, page, push, release, sync, trace, write
from benchmarks.homes import Sizes, Workshop, say
from benchmarks.table import Table

QUESTIONS: dict[str, Callable[[Workshop], Table]] = {
    module.NAME: module.run for module in (write, trace, imports, release, command, push, sync)
}


def main() -> None:
    """Run the questions that were asked for."""
    options = _options()
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
    text = page.measured(tables, command=_command(options))
    if options.page:
        page.update(options.page, text)
    elif not options.quick:
        print(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument("--only", choices=sorted(QUESTIONS), action="append", help="may be repeated")
    parser.add_argument("--folder", help="where the temporary folder is made")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="put the results into this page, docs/performance.md"
    )
    return parser.parse_args()


def _command(options: argparse.Namespace) -> str:
    only = [f"--only {name}" for name in options.only or ()]
    return " ".join(["python -m benchmarks", *(["--quick"] if options.quick else []), *only])


if __name__ == "__main__":
    main()
