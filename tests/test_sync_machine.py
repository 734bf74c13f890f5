"""Two homes and a host, in any order of writes, states, releases and syncs.

In the end all three are the same, nothing is lost but what was released, and what was released or
forgotten is nowhere.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gitmem import Home, Memory
from gitmem.errors import RefusedError
from gitmem.maintain import maintain
from gitmem.receive import install
from gitmem.sync import add_remote, sync
from tests.conftest import PERSONA, FakeClock, run_git
from tests.kill import secret
from tests.traces import found_in, runs_of

homes = st.integers(0, 1)
epochs = st.sampled_from(["D1", "D2"])
picks = st.integers(0, 10_000)


@dataclass
class Known:
    """What the model knows of a leaf."""

    text: str
    released: bool = False
    forgotten: bool = False


class Exchange(RuleBasedStateMachine):
    """The model: every text that was written, and what was done to it."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gitmem-machine-"))
        self.host = self.folder / "host" / "ym001" / "zy001.git"
        self.host.parent.mkdir(parents=True)
        run_git(self.folder, "init", "-q", "--bare", str(self.host))
        install.install(str(self.host))
        self.clock = FakeClock()
        self.homes = [Home.init(self.folder / name, clock=self.clock) for name in ("one", "two")]
        self.homes[0].add_persona(PERSONA, timezone="Asia/Shanghai")
        add_remote(self.homes[0], PERSONA, str(self.host))
        assert sync(self.homes[0]).exit_code == 0
        add_remote(self.homes[1], PERSONA, str(self.host))
        self.leaves: dict[str, Known] = {}
        self.count = 0

    def memory(self, home: int) -> Memory:
        return self.homes[home].persona(PERSONA)

    def pick(self, home: int, number: int) -> str | None:
        """One of the leaves that are alive and known in that home."""
        memory = self.memory(home)
        found = [
            path for path in sorted(self.leaves) if memory.trace(path).status not in ("not_found", "released")
        ]
        return found[number % len(found)] if found else None

    # -- steps -------------------------------------------------------------------------------

    @rule(seconds=st.integers(0, 100))
    def tick(self, seconds: int) -> None:
        self.clock.now += timedelta(seconds=seconds)

    @rule(home=homes, epoch=epochs, tagged=st.booleans())
    def write(self, home: int, epoch: str, tagged: bool) -> None:
        self.count += 1
        text = secret(f"text {self.count}")
        leaf = self.memory(home).write(text, epoch=epoch, tags=["雨"] if tagged else [])
        self.leaves[leaf.trace_path] = Known(text)

    @rule(home=homes, turn=st.integers(0, 3), same=st.booleans())
    def write_turn(self, home: int, turn: int, same: bool) -> None:
        self.count += 1
        text = secret(f"turn {turn}" if same else f"turn {turn} {self.count}")
        with contextlib.suppress(RefusedError):
            leaf = self.memory(home).write(text, epoch="D1", role="user", turn_id=f"t-{turn}")
            if leaf.created:
                self.leaves[leaf.trace_path] = Known(text)

    @rule(home=homes, number=picks)
    def archive(self, home: int, number: int) -> None:
        if path := self.pick(home, number):
            with contextlib.suppress(RefusedError):
                self.memory(home).archive(path)

    @rule(home=homes, number=picks)
    def remember(self, home: int, number: int) -> None:
        if path := self.pick(home, number):
            with contextlib.suppress(RefusedError):
                self.memory(home).remember(path, restore=True)

    @rule(home=homes, number=picks, keep=st.sampled_from([0.2, 0.6]), forget=st.booleans())
    def wither(self, home: int, number: int, keep: float, forget: bool) -> None:
        if path := self.pick(home, number):
            with contextlib.suppress(RefusedError):
                self.memory(home).wither(path, keep, forget_original=forget)
                self.leaves[path].forgotten |= forget

    @rule(home=homes, number=picks)
    def release(self, home: int, number: int) -> None:
        if path := self.pick(home, number):
            self.memory(home).release(path)
            self.leaves[path].released = True

    @rule(home=homes)
    def pack(self, home: int) -> None:
        maintain(self.memory(home))

    @precondition(lambda self: self.leaves)
    @rule(home=homes)
    def sync(self, home: int) -> None:
        self.exchange(home)

    def exchange(self, home: int) -> Any:
        report = sync(self.homes[home], PERSONA).remotes[0]
        assert report.reached, report.error
        for branch in report.branches.values():
            assert not branch.stopped, branch.stopped
            where = f"{PERSONA}/{branch.branch}/"
            for old, new in branch.renamed.items():
                self.leaves[where + new] = self.leaves.pop(where + old)
            for old, new in branch.dropped.items():
                gone, stays = self.leaves.pop(where + old), self.leaves[where + new]
                assert stays.released or gone.text == stays.text
                stays.released |= gone.released
                stays.forgotten |= gone.forgotten
        assert all(place.reach.value != "could not reach" for place in report.places), report.places
        return report

    # -- the end -----------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "leaves"):
            return
        try:
            for home in (0, 1, 0, 1):
                report = self.exchange(home)
            assert report.told == []
            self.check_same()
            self.check_texts()
        finally:
            for opened in self.homes:
                opened.close()
            shutil.rmtree(self.folder)

    def check_same(self) -> None:
        folders = [self.host, *(Path(self.memory(i).repository.folder) for i in (0, 1))]
        refs = {
            run_git(f, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads") for f in folders
        }
        assert len(refs) == 1
        for folder in folders:
            run_git(folder, "fsck", "--full", "--strict")

    def check_texts(self) -> None:
        shown = b""
        for path, leaf in self.leaves.items():
            answers = [self.memory(home).remember(path) for home in (0, 1)]
            assert answers[0] == answers[1]
            if leaf.released:
                assert answers[0].status == "released"
                continue
            assert answers[0].found, path
            content = answers[0].content or ""
            shown += content.encode()
            if leaf.forgotten:
                assert content != leaf.text
            elif answers[0].status != "wither":
                assert content == leaf.text
        alive = [leaf.text for leaf in self.leaves.values() if not leaf.released and not leaf.forgotten]
        shown += "".join(alive).encode()
        gone = [leaf.text for leaf in self.leaves.values() if leaf.released or leaf.forgotten]
        runs = set().union(*(runs_of(text, shown) for text in gone)) if gone else set()
        if runs:
            assert found_in(self.folder, runs) == []
            assert found_in(self.host.parents[1], runs) == []


def run(examples: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        Exchange,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
        ),
    )


@pytest.mark.timeout(600)
def test_two_homes_and_a_host_come_to_the_same() -> None:
    run(5, 14)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_homes_and_a_host_come_to_the_same_for_long() -> None:
    run(60, 30)
