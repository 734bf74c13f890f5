"""Fixtures that every test may use: nothing reads the user's world, and time is what the test says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pygit2
import pytest

from gitmem import Home, Memory
from tests import hostile
from tests.forge import forge, make_forge  # noqa: F401 - fixtures
from tests.pushing import one_site, site  # noqa: F401 - fixtures

PERSONA = "YM001/ZY001"
START = datetime(2026, 5, 31, 11, 54, 47, tzinfo=timezone(timedelta(hours=8)))
GIT_DATE = "2026-05-31T12:00:00+0800"
_LEVELS = (
    pygit2.enums.ConfigLevel.SYSTEM,
    pygit2.enums.ConfigLevel.GLOBAL,
    pygit2.enums.ConfigLevel.XDG,
    pygit2.enums.ConfigLevel.PROGRAMDATA,
)


# The whole suite runs a second time with this set: gitmem then meets a user whose git is hostile.
HOSTILE_USER = os.environ.get("GITMEM_TEST_HOSTILE") == "1"


@pytest.fixture(scope="session", autouse=True)
def no_user_git_configuration() -> Iterator[None]:
    """libgit2 of this process looks for no configuration outside a repository."""
    before = {level: pygit2.settings.search_path[level] for level in _LEVELS}
    for level in _LEVELS:
        pygit2.settings.search_path[level] = ""
    yield
    for level, value in before.items():
        pygit2.settings.search_path[level] = value


@pytest.fixture(autouse=True)
def hermetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user: home folder, configuration, identity, dates. The folder that is HOME."""
    user = tmp_path / "user"
    user.mkdir()
    for key in [key for key in os.environ if key.startswith(("GIT_", "GITMEM_", "XDG_", "PYTHONWARNINGS"))]:
        monkeypatch.delenv(key)
    values = {
        "HOME": str(user),
        "XDG_CONFIG_HOME": str(user / "config"),
        "XDG_DATA_HOME": str(user / "data"),
        "XDG_STATE_HOME": str(user / "state"),
        "XDG_CACHE_HOME": str(user / "cache"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "false",
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.invalid",
        "GIT_AUTHOR_DATE": GIT_DATE,
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.invalid",
        "GIT_COMMITTER_DATE": GIT_DATE,
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
    }
    for key, value in values.items():
        monkeypatch.setenv(key, value)
    if HOSTILE_USER:
        hostile.write(user)
        pygit2.settings.search_path[pygit2.enums.ConfigLevel.GLOBAL] = str(user)
    return user


class FakeClock:
    """A clock that stands still until it is told to move: `clock()` gives the time, with its offset."""

    def __init__(self, now: datetime = START) -> None:
        assert now.tzinfo is not None
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def set(self, now: datetime | str) -> None:
        """Move to a time, given with its offset."""
        moment = datetime.fromisoformat(now) if isinstance(now, str) else now
        assert moment.tzinfo is not None
        self.now = moment

    def tick(self, seconds: float = 1) -> datetime:
        """Go on by so many seconds; the new time."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def utc(self) -> datetime:
        """The time in UTC."""
        return self.now.astimezone(UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def home(tmp_path: Path, clock: FakeClock) -> Iterator[Home]:
    """A new home in `tmp_path/home`, with the fake clock."""
    with Home.init(tmp_path / "home", clock=clock) as made:
        yield made


@pytest.fixture
def memory(home: Home) -> Memory:
    """The memory of YM001/ZY001, also called 铸渊, in that home."""
    return home.add_persona(PERSONA, aliases=["铸渊"], human="冰朔", timezone="Asia/Shanghai")


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8")

    def json(self) -> Any:
        """The one JSON value that stdout holds."""
        return json.loads(self.out)


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., Done]:
    """Run `gitmem ARGUMENTS…` in a process of its own.

    Keywords: `data` for stdin, `env` to add variables (None removes one), `cwd`, and `check` to say
    which exit code must come (an AssertionError tells what was said instead).
    """

    def run(
        *arguments: str | Path,
        data: bytes = b"",
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        check: int | None = None,
        timeout: float = 100,
    ) -> Done:
        world: dict[str, str] = dict(os.environ)
        for key, value in ((hostile.MISLEADING if HOSTILE_USER else {}) | dict(env or {})).items():
            if value is None:
                world.pop(key, None)
            else:
                world[key] = value
        command = [sys.executable, "-m", "gitmem", *map(str, arguments)]
        place = cwd or tmp_path
        ran = subprocess.run(
            command, input=data, capture_output=True, env=world, cwd=place, timeout=timeout, check=False
        )
        done = Done(ran.returncode, ran.stdout, ran.stderr.decode("utf-8", "replace"))
        if check is not None:
            assert done.code == check, f"gitmem {arguments}: exit {done.code}\n{done.err}\n{done.out!r}"
        return done

    return run


def run_git(folder: str | Path, *arguments: str, data: bytes = b"", ok: tuple[int, ...] = (0,)) -> bytes:
    """Run plain git in `folder` and return what it prints; fail the test if it fails."""
    command = ["git", "-C", str(folder), *arguments]
    ran = subprocess.run(command, input=data, capture_output=True, check=False)
    assert ran.returncode in ok, f"git {' '.join(arguments)}: {ran.stderr.decode('utf-8', 'replace')}"
    return ran.stdout


@pytest.fixture
def git() -> Callable[..., bytes]:
    """`git(folder, *arguments)`: plain git, its stdout; raises where it fails."""
    return run_git
