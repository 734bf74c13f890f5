"""kill -9 in post-receive: the push stands, and whoever comes next ends the purge."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_git
from tests.forge import Clone
from tests.kill import MODES, PERSONA, Killer
from tests.pushing import TOMBSTONE, taken
from tests.test_kill import REPOSITORY, check_fsck, leavings, where_is

TARGET = "raw/20260607-090000.txt"
SIDECAR = "meta/raw/20260607-090000.yaml"
TURNS = {"D1": "turn_id: D1\nrole: user\n", "D2": "turn_id: D2\nrole: user\n"}


@dataclass
class Scene:
    """A home to which two tombstones were pushed, with what follows the push still to be done."""

    killer: Killer
    prepared: Path
    lines: list[str]
    before: dict[str, Any]

    @classmethod
    def make(cls, killer: Killer, folder: Path, state: str) -> Scene:
        prepared = folder / "prepared"
        killer.run(prepared, "init")
        killer.run(prepared, "prepare", state)
        before = killer.run(prepared, "trace", killer.run(prepared, "paths"))
        repository = prepared / REPOSITORY
        hook = repository / "hooks/post-receive.d/10-gitmem"
        script = hook.read_text()
        hook.write_text("#!/bin/sh\n")
        work = Clone.make(folder / "work", str(repository), {})
        lines = []
        for epoch, turn in TURNS.items():
            work.git("switch", "-q", epoch)
            old = work.git("rev-parse", "HEAD")
            # An archived leaf has left the branch already.
            text = {TARGET: None} if (work.folder / TARGET).exists() else {}
            new = work.commit(text | {SIDECAR: TOMBSTONE + turn}, f"release {TARGET}")
            lines.append(f"{old} {new} refs/heads/{epoch}\n")
        taken(work.push(*TURNS))
        hook.write_text(script)
        return cls(killer, prepared, lines, before)

    def check(self, home: Path, step: str) -> None:
        """Nothing of the released is left, and everything else is as it was."""
        now = self.killer.run(home, "trace", sorted(self.before))
        for path, answer in self.before.items():
            if path.endswith(TARGET):
                assert now[path]["status"] == "released", step
            else:
                assert now[path] == answer, step
        assert where_is(home, ("target D1", "target D2")) == [], step
        assert leavings(home) == [], step
        check_fsck(home)

    def finish(self, home: Path, at: int) -> None:
        """What may come next: any command, the same hook again, or another push."""
        if at % 3 == 0:
            self.killer.run(home, "timeline")
        elif at % 3 == 1:
            self.killer.run(home, "next", "the next command")
        else:
            work = Clone.make(home.with_name("next"), str(home / REPOSITORY), {})
            work.git("switch", "-q", "D1")
            work.commit({"raw/20260609-080000.txt": "又一次推送。"})
            taken(work.push())
            run_git(home / REPOSITORY, "fsck")
            # The push was to D1; D2 is for the next command.
            self.killer.run(home, "timeline")
            shutil.rmtree(work.folder)


def sweep(scene: Scene, folder: Path, every: int, shift: int = 0) -> None:
    """Kill at every so many steps from `shift` on, in one mode after the other."""
    home = folder / "trial"
    shutil.copytree(scene.prepared, home)
    steps = scene.killer.steps(home, "post_receive", scene.lines)
    scene.check(home, "no kill")
    assert len(steps) > 40
    for at in range(1 + shift % every, len(steps) + 1, every):
        mode = MODES[(at // every + shift) % len(MODES)]
        shutil.rmtree(home)
        shutil.copytree(scene.prepared, home)
        step = scene.killer.kill(home, "post_receive", scene.lines, at, mode)
        if step is None:
            continue
        check_fsck(home)
        scene.finish(home, at)
        scene.check(home, step)
    shutil.rmtree(home)


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    made = Killer(tmp_path / "scratch")
    yield made
    made.close()


def test_kill_at_some_steps(killer: Killer, tmp_path: Path) -> None:
    sweep(Scene.make(killer, tmp_path, "packed"), tmp_path, 11)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("shift", "state"), list(enumerate(["loose", "packed", "archived packed"])))
def test_kill_at_every_step(state: str, shift: int, killer: Killer, tmp_path: Path) -> None:
    """Each step at least once: every other one in each state."""
    sweep(Scene.make(killer, tmp_path, state), tmp_path, 2, shift)


def test_push_is_killed_before_post_receive(killer: Killer, tmp_path: Path) -> None:
    """The branch has moved, and no hook ran: the promise of pre-receive is enough."""
    scene = Scene.make(killer, tmp_path, "loose")
    assert where_is(scene.prepared, ("target D1",))
    assert sorted(path.name for path in (scene.prepared / REPOSITORY / "gitmem.purge").iterdir()) == [
        "D1.json",
        "D2.json",
    ]
    killer.run(scene.prepared, "timeline")
    scene.check(scene.prepared, "no post-receive")
    assert PERSONA in "".join(scene.before)
