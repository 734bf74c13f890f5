"""`gitmem demo`: the first run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

import gitmem
from gitmem.cli import run
from gitmem.errors import UnavailableError
from gitmem.home import Home
from gitmem.memory import Memory
from gitmem.settings import Settings
from gitmem.store import verify

_NAME = "gitmem-demo"


@run.command("demo")
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Plain files to begin with; else sample-repo.",
)
def demo_command(folder: Path | None, source: Path | None) -> None:
    """Make a home from sample-repo, and show a memory's whole life in it.

    The home is left in DIR (by default a new ./gitmem-demo) for you to look into.
    """
    from gitmem.importers.stored import init_from

    target = folder or run.chosen_home() or _free_folder()
    report = init_from(target, source or _sample(), settings=Settings(demo=True))
    run_steps: list[dict[str, Any]] = []
    with Home(target) as home:
        persona = sorted(report.personas)[-1]
        memory = home.persona(persona)
        count = f"{report.taken} leaves of {len(report.personas)} personas"
        _tell(f"1. {count} became git repositories in {target}.")
        run_steps = _life(memory)
    value = {"home": str(target.absolute()), "taken": report.taken, "steps": run_steps}

    def text() -> None:
        run.say("")
        run.say("Look into it:")
        run.say(f"  {_program()} --home {target} timeline {persona} --limit 5")
        run.say(
            f"  git -C {memory.repository.folder} log --oneline {run_steps[0]['trace_path'].split('/')[2]}"
        )
        run.say(f"  {_program()} --home {target} doctor --loop")

    run.answer(value, text)


def _program() -> str:
    """How to call gitmem again: by its path, where it is not on PATH."""
    called = Path(sys.argv[0])
    return str(called) if called.name == "gitmem" and shutil.which("gitmem") is None else "gitmem"


def _tell(line: str) -> None:
    if not run.wants_json():
        run.say(line)


def _life(memory: Memory) -> list[dict[str, Any]]:
    """Write, archive, remember, wither and release one leaf; what each step answered."""
    text = "今天第一次用 gitmem。窗外在下雨，猫睡在键盘旁边。晚上想煮一碗面。"
    steps: list[dict[str, Any]] = []

    def step(name: str, line: str, status: str) -> None:
        steps.append({"step": name, "trace_path": leaf.trace_path, "status": status})
        _tell(f"{len(steps) + 1}. {line}")

    leaf = memory.write(text, role="user", label="demo")
    step("write", f"Written: {leaf.trace_path}, commit {(leaf.commit or '')[:12]}.", "active")
    memory.archive(leaf.trace_path)
    found = memory.trace(leaf.trace_path)
    step("archive", f"Archived: out of the branch, and found in history: {found.content}", found.status)
    found = memory.remember(leaf.trace_path, restore=True)
    step("remember", f"Remembered: it is {found.status} again.", found.status)
    memory.wither(leaf.trace_path)
    found = memory.trace(leaf.trace_path)
    step("wither", f"Withered: {found.content}", found.status)
    report = memory.release(leaf.trace_path)
    left = verify.remaining(memory.repository.objects, [bytes.fromhex(leaf.blob or "")])
    found = memory.trace(leaf.trace_path)
    proof = "an independent reader finds none of them" if not left and report.complete else "NOT ALL ARE GONE"
    step("release", f"Released: {report.objects} git objects deleted, {proof}.", found.status)
    return steps


def _free_folder() -> Path:
    for number in range(1, 1000):
        path = Path(_NAME if number == 1 else f"{_NAME}-{number}")
        if not path.exists():
            return path
    raise UnavailableError(
        f"there are a thousand folders {_NAME} here.", hint="Remove them, or name a folder."
    )


def _sample() -> Path:
    """sample-repo: in the working folder, beside the package in a clone, or inside an installed one."""
    package = Path(gitmem.__file__).parent
    for path in (Path("sample-repo"), package.parent / "sample-repo", package / "sample"):
        if path.is_dir():
            return path
    raise UnavailableError(
        "sample-repo is not here.", hint="Run it in a clone of gitmem, or name a folder: --from DIR."
    )
