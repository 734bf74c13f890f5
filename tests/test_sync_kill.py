"""kill -9 in a sync: nothing is lost on either side, and the next sync comes to the same end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitmem import Home
from gitmem.maintain import maintain
from gitmem.receive import install
from gitmem.sync import add_remote, sync
from tests.conftest import run_git
from tests.kill import MODES, NOW, PERSONA, Killer, secret
from tests.test_kill import REPOSITORY, check_fsck, leavings, where_is

TARGETS = [f"{PERSONA}/D1/raw/20260607-090000.txt", f"{PERSONA}/D2/raw/20260607-090000.txt"]
RELEASED = ("target D1", "target D2")
OFFLINE = f"{PERSONA}/D1/raw/20260609-120000-offline"


@dataclass
class Scene:
    """Two homes and a host between them. The first home is to take a release, and to send another.

    Both have new leaves in the same epoch; one of the first home's was released before it was sent.
    """

    killer: Killer
    live: Path
    saved: Path
    texts: dict[str, str]
    """What every leaf that lives must say in the end."""

    @classmethod
    def make(cls, killer: Killer, folder: Path, state: str) -> Scene:
        live = folder / "live"
        host = live / "host" / REPOSITORY
        host.parent.mkdir(parents=True)
        run_git(folder, "init", "-q", "--bare", str(host))
        install.install(str(host))
        killer.run(live / "one", "init")
        killer.run(live / "one", "prepare", state)
        with Home(live / "one", clock=lambda: NOW) as one, Home.init(live / "two", clock=lambda: NOW) as two:
            add_remote(one, PERSONA, str(host))
            assert sync(one).exit_code == 0
            add_remote(two, PERSONA, str(host))
            ours, theirs = one.persona(PERSONA), two.persona(PERSONA)
            theirs.release(TARGETS[0])
            new = [theirs.write("说在那边", epoch="D1", label="there").trace_path]
            assert sync(two).exit_code == 0
            new.append(ours.write("说在这边", epoch="D1", label="here").trace_path)
            gone = ours.write(secret("offline"), epoch="D1", label="gone").trace_path
            new.append(ours.write("一天之后", epoch="D7").trace_path)
            ours.release(TARGETS[1])
            ours.release(gone)
            if "packed" in state:
                maintain(ours)
            known = {**dict.fromkeys(new[1:], ours), new[0]: theirs}
            texts = {path: memory.trace(path).content or "" for path, memory in known.items()}
            for entry in ours.timeline(limit=1000).entries:
                if entry.trace_path not in TARGETS:
                    texts[entry.trace_path] = ours.remember(entry.trace_path).content or ""
        saved = folder / "saved"
        shutil.copytree(live, saved)
        return cls(killer, live, saved, texts)

    def reset(self) -> None:
        shutil.rmtree(self.live)
        shutil.copytree(self.saved, self.live)

    def check_safe(self, step: str) -> None:
        """Right after a kill: git finds nothing wrong, and our own leaves are all there."""
        for name in ("one", "host"):
            check_fsck(self.live / name)
        ours = [path for path in self.texts if "there" not in path]
        for path, answer in self.killer.run(self.live / "one", "trace", ours).items():
            assert answer["status"] in ("active", "archived", "wither"), f"{path} after {step}: {answer}"

    def check_end(self, step: str) -> None:
        """Both homes and the host are in step; nothing is lost but what was released."""
        reports: list[Any] = []
        for name in ("one", "two", "one"):
            reports += self.killer.run(self.live / name, "sync")["results"]
        for report in reports:
            assert report["reached"], f"after {step}: {report}"
            calm = all(not b["stopped"] and not b["conflicts"] for b in report["branches"])
            assert calm, f"after {step}: {report}"
            assert all(place["status"] != "could not reach" for place in report["places"]), report
        assert reports[-1]["branches"] == [], f"after {step}: {reports[-1]}"
        for epoch in ("D1", "D2", "D3", "D7", "main"):
            names = ("one", "two", "host")
            tips = {run_git(self.live / name / REPOSITORY, "rev-parse", epoch) for name in names}
            assert len(tips) == 1, f"{epoch} after {step}"
        for name in ("one", "two"):
            for path, answer in self.killer.run(self.live / name, "trace", TARGETS).items():
                assert answer["status"] == "released", f"{path} after {step}"
            with Home(self.live / name, clock=lambda: NOW) as home:
                memory = home.persona(PERSONA)
                for path, text in self.texts.items():
                    assert memory.remember(path).content == text, f"{path} after {step}"
        for name in ("one", "two", "host"):
            home = self.live / name
            check_fsck(home)
            assert where_is(home, (*RELEASED, "offline")) == [], f"{name} after {step}"
            left = [path for path in leavings(home) if "gitmem.purge/" not in path]
            left += [str(path) for path in home.rglob("gitmem.incoming-*")]
            assert left == [], f"{name} after {step}"


def attempt(scene: Scene, at: int, mode: str) -> str:
    """Kill one sync and check everything; what is wrong."""
    scene.reset()
    step = scene.killer.kill(scene.live / "one", "sync", None, at, mode)
    if step is None:
        return ""
    try:
        scene.check_safe(step)
        if at % 2:
            scene.killer.run(scene.live / "one", "next", "the next command")
        scene.check_end(step)
    except AssertionError as fault:
        return f"{step}: {str(fault)[:600]}"
    return ""


def telling(steps: list[str]) -> list[int]:
    """Numbers of the steps of which each does something else than the few before it.

    A sync writes hundreds of small files in a row: one of them stands for those like it.
    """
    kinds = [re.sub(r"[0-9a-f]{6,}|[0-9]+", "", step) for step in steps]
    return [at for at, kind in enumerate(kinds, 1) if kind not in kinds[max(0, at - 9) : at - 1]]


def sweep(scene: Scene, every: int, shift: int = 0) -> None:
    """Kill at every so many telling steps from `shift` on, in one mode after the other."""
    steps = telling(scene.killer.steps(scene.live / "one", "sync"))
    scene.check_end("no kill")
    assert len(steps) > 40
    modes = [MODES[(number + shift) % len(MODES)] for number in range(len(steps))]
    wrong = [attempt(scene, at, mode) for at, mode in zip(steps[shift::every], modes, strict=False)]
    found = [fault for fault in wrong if fault]
    assert not found, f"{len(found)} of {len(wrong)} kills:\n" + "\n".join(found)


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    made = Killer(tmp_path / "scratch")
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_kill_at_some_steps(killer: Killer, tmp_path: Path) -> None:
    sweep(Scene.make(killer, tmp_path, "packed"), 40)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("shift", "state"), [(0, "loose"), (1, "packed"), (2, "loose")])
def test_kill_at_every_telling_step(state: str, shift: int, killer: Killer, tmp_path: Path) -> None:
    """Each step once: a third of them here, the others there."""
    sweep(Scene.make(killer, tmp_path, state), 3, shift)
