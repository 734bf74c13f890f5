"""Killing gitmem at every step by which it changes the world, without a hook inside gitmem.

`Killer` starts this file as a server. For each request the server forks a child that does one
thing to one home. In the child everything that changes a file, and every git command and SQL
statement, is counted; at call number N the child sends itself SIGKILL, in one of three modes:

    before   just before the call
    after    just after it
    torn     in the middle of it: half of the bytes written, an object or a pack begun, a lock taken

The server has one thread and opens no repository, so a fork is a clean new process.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pygit2

import gitmem.cli
from gitmem import Home, Memory, TracePath, host
from gitmem.clone import clone
from gitmem.clone import sync as sync_copy
from gitmem.importers import entries, turns
from gitmem.importers.report import ImportReport
from gitmem.maintain import maintain
from gitmem.receive.hook import post_receive
from gitmem.sync import sync

PERSONA = "YM001/ZY001"
NOW = datetime.fromisoformat("2026-06-10T09:00:00+08:00")
MODES = ("before", "after", "torn")
_CALLS = ("rename", "replace", "link", "unlink", "truncate", "fsync", "mkdir", "write", "chmod")


def secret(seed: str) -> str:
    """A text of five sentences whose every 12-byte run stands in no other text."""
    parts = [hashlib.sha256(f"{seed} {i}".encode()).hexdigest() for i in range(5)]
    return "。".join(parts) + "。"


# -- what is done to a home -----------------------------------------------------------------


def _at(minutes: int) -> str:
    return (NOW - timedelta(days=3) + timedelta(minutes=minutes)).isoformat()


def _paths(memory: Memory) -> list[str]:
    """Every leaf there is, tombstones included, oldest name first."""
    found = []
    for epoch in memory.repository.epochs():
        view = memory.repository.view(epoch)
        assert view is not None
        leaves = {f"{kind}/{name}" for kind in ("raw", "hldp") for name in view.names(kind)}
        leaves |= {leaf.path for kind in ("raw", "hldp") for leaf in view.sidecar_ids(kind)}
        found += [f"{memory.name}/{epoch}/{leaf}" for leaf in sorted(leaves)]
    return found


def prepare(memory: Memory, state: str) -> Any:
    """Two epochs of eight leaves; the first of each is what a verb works on.

    `state`: "loose", or "packed" (both epochs in one pack), and what the first leaf is.
    """
    targets = []
    for epoch in ("D1", "D2"):
        first = memory.write(secret(f"target {epoch}"), epoch=epoch, at=_at(0), role="user", turn_id=epoch)
        targets.append(first.trace_path)
        for i in range(1, 8):
            memory.write(secret(f"{epoch} {i}"), epoch=epoch, at=_at(i), tags=["雨"] if i % 2 else [])
        memory.write(secret("both"), epoch=epoch, at=_at(20), label="both")
        memory.archive(f"{PERSONA}/{epoch}/raw/20260607-090300.txt")
    memory.write("an epoch that is open", epoch="D3", at=_at(30))
    if "archived" in state:
        memory.archive(*targets)
    if "withered" in state:
        memory.wither(targets[0], 0.4)
    if "packed" in state:
        maintain(memory)
    return targets


def _import(memory: Memory, file: str) -> Any:
    report = ImportReport()
    found = turns.read(memory, Path(file).read_bytes(), file, report)
    return entries.take(memory, found, "D9", report).as_dict()


def _init(home: Path, _: Any) -> Any:
    with Home.init(home, clock=lambda: NOW) as made:
        made.add_persona(PERSONA, timezone="Asia/Shanghai", human="冰朔")


DEEDS: dict[str, Callable[[Memory, Any], Any]] = {
    "prepare": prepare,
    "paths": lambda m, _: _paths(m),
    "trace": lambda m, paths: {path: m.trace(path).as_dict() for path in paths},
    "timeline": lambda m, _: [entry.as_dict() for entry in m.timeline(limit=1000).entries],
    "next": lambda m, text: m.write(text, at=NOW + timedelta(hours=1), epoch="D1", label="next").trace_path,
    "write": lambda m, _: m.write(secret("new"), epoch="D1", tags=["猫"]).trace_path,
    "write_turn": lambda m, _: [
        leaf.trace_path for leaf in m.write_turn("t-9", user=secret("u"), companion=secret("c"), epoch="D4")
    ],
    "record": lambda m, _: m.record({"题": [1, None]}, id="mem_killed00", epoch="D2").trace_path,
    "archive": lambda m, paths: [leaf.trace_path for leaf in m.archive(*paths)],
    "wither": lambda m, paths: m.wither(paths[0]).trace_path,
    "forget": lambda m, paths: m.wither(paths[0], forget_original=True).trace_path,
    "remember": lambda m, paths: m.remember(paths[0], restore=True).status,
    "release": lambda m, paths: m.release(*paths).as_dict(),
    "import": _import,
    "maintain": lambda m, _: maintain(m).as_dict(),
    "clone": lambda m, folder: clone(m.repository.folder, folder).as_dict(),
    "sync_copy": lambda _, folder: sync_copy(folder).as_dict(),
}


def _do(home: Path, deed: str, value: Any) -> Any:
    if deed == "init":
        return _init(home, value)
    if deed == "post_receive":
        return post_receive(str(home / "ym001/zy001.git"), [line.encode() for line in value])
    with Home(home, clock=lambda: NOW) as opened:
        if deed == "sync":
            return sync(opened, PERSONA).as_dict()
        return DEEDS[deed](opened.persona(PERSONA), value)


# -- counting and killing -------------------------------------------------------------------


class _Killer:
    """Counts the calls of one child, and ends it at the chosen one."""

    def __init__(self, number: int, mode: str, log: int) -> None:
        self.number, self.mode, self.log = number, mode, log
        self.calls = 0
        self.write = os.write

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wrap(
        self, name: str, call: Callable[..., Any], torn: Callable[..., None] | None = None
    ) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            mine = self.calls == self.number
            self.write(self.log, f"{self.calls} {name} {str(args)[:200]}\n".encode("utf-8", "replace"))
            if mine and self.mode == "torn":
                if torn is not None:
                    torn(*args, **kwargs)
                self.die()
            if mine and self.mode == "before":
                self.die()
            try:
                return call(*args, **kwargs)
            finally:
                if mine:
                    self.die()

        return counted

    def install(self) -> None:
        for name in _CALLS:
            torn = self._torn_write if name == "write" else None
            setattr(os, name, self.wrap(f"os.{name}", getattr(os, name), torn))
        subprocess.run = self.wrap("run", subprocess.run, _torn_run)  # type: ignore[assignment]
        host.talk_git = self.wrap("talk", host.talk_git)
        self._install_odb()
        self._install_open()
        self._install_sqlite()

    def _torn_write(self, handle: int, data: bytes) -> None:
        self.write(handle, bytes(data)[: len(data) // 2])

    def _install_odb(self) -> None:
        killer, real = self, pygit2.Repository.odb

        class Odb:
            """An object database whose writes are counted."""

            def __init__(self, repository: pygit2.Repository) -> None:
                self._odb = real.__get__(repository)
                folder = f"{repository.path}objects"
                self.write = killer.wrap("odb.write", self._odb.write, lambda *_: _torn_object(folder))
                self.read = self._odb.read

            def __contains__(self, oid: pygit2.Oid) -> bool:
                return oid in self._odb

        pygit2.Repository.odb = property(Odb)  # type: ignore[assignment]

    def _install_open(self) -> None:
        killer, real = self, builtins.open

        class Raw(io.FileIO):
            """A file without a buffer, whose writes are counted."""

            def write(self, data: bytes) -> int:  # type: ignore[override]
                plain = super().write
                torn = killer.wrap("file.write", plain, lambda data: plain(data[: len(data) // 2]))
                return int(torn(data))

        def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real(file, mode, buffering, *args, **kwargs)
            if buffering == 0:
                return killer.wrap(f"open {mode}", Raw)(file, mode)
            return killer.wrap(f"open {mode}", real)(file, mode, buffering, *args, **kwargs)

        builtins.open = opened  # type: ignore[assignment]

    def _install_sqlite(self) -> None:
        killer, real = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            """A connection whose statements are counted."""

            def execute(self, *args: Any) -> Any:  # type: ignore[override]
                if args[0].lstrip()[:6].upper() in ("SELECT", "PRAGMA"):
                    return super().execute(*args)
                return killer.wrap("sql", super().execute)(*args)

            def executemany(self, *args: Any) -> Any:  # type: ignore[override]
                return killer.wrap("sql many", super().executemany)(*args)

        sqlite3.connect = lambda *a, **k: real(*a, factory=Connection, **k)  # type: ignore[assignment]


def _torn_object(folder: str) -> None:
    """What libgit2 leaves when it is killed while it writes an object."""
    with io.FileIO(f"{folder}/tmp_object_git2_{os.urandom(3).hex()}", "w") as file:
        file.write(b"\x78\x01half")


def _torn_run(command: list[str], **_: Any) -> None:
    """What git leaves when it is killed with its caller while it works."""
    folder = command[command.index("--git-dir") + 1]
    left = {"pack-objects": "objects/pack/tmp_pack_Xy12Z8"}
    for verb, name in left.items():
        if verb in command:
            with io.FileIO(f"{folder}/{name}", "w") as file:
                file.write(b"PACK\0\0\0\2half of it")


# -- the server -----------------------------------------------------------------------------


def _child(request: dict[str, Any], out: int, log: int) -> None:
    home = Path(request["home"])
    killer = _Killer(request["at"], request["mode"], log)
    if request["count"]:
        killer.install()
    try:
        answer = {"value": _do(home, request["deed"], request["value"])}
    except BaseException as fault:  # noqa: BLE001 - whatever it is, the test is told
        answer = {"error": f"{type(fault).__name__}: {fault}", "trace": traceback.format_exc()}
    with io.FileIO(out, "w") as file:
        file.write(json.dumps(answer).encode())


def _serve() -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        out, log = (Path(request["scratch"]) / name for name in ("answer", "log"))
        for path in (out, log):
            path.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            _child(request, os.open(out, flags), os.open(log, flags))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        answer = {} if killed else json.loads(out.read_bytes() or b'{"error": "the child said nothing"}')
        steps = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        answer |= {"killed": killed, "step": steps[-1] if steps else ""}
        answer |= {} if request["at"] else {"steps": steps}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class Killer:
    """The server, as a test uses it."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(exist_ok=True)
        self._scratch = str(scratch)
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def _ask(self, home: Path, deed: str, value: Any, at: int, mode: str, *, count: bool) -> dict[str, Any]:
        request = {"home": str(home), "deed": deed, "value": value, "at": at, "mode": mode, "count": count}
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request | {"scratch": self._scratch}).encode() + b"\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def run(self, home: Path, deed: str, value: Any = None) -> Any:
        """Do it in a process of its own; what it returned. Fails the test if it failed."""
        answer = self._ask(home, deed, value, 0, "before", count=False)
        assert "error" not in answer, f"{deed} after a kill: {answer['error']}\n{answer.get('trace')}"
        assert not answer["killed"]
        return answer["value"]

    def steps(self, home: Path, deed: str, value: Any = None) -> list[str]:
        """Do it; its steps in order, each with its number."""
        answer = self._ask(home, deed, value, 0, "before", count=True)
        assert "error" not in answer, answer
        steps: list[str] = answer["steps"]
        return steps

    def kill(self, home: Path, deed: str, value: Any, at: int, mode: str) -> str | None:
        """Do it and die at step `at`; the step, or None where it ended before it got there."""
        answer = self._ask(home, deed, value, at, mode, count=True)
        assert "error" not in answer, answer
        return f"{mode} {answer['step']}" if answer["killed"] else None

    def close(self) -> None:
        """End the server."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(timeout=60)


if __name__ == "__main__":
    assert gitmem.cli is not None
    assert TracePath is not None
    _serve()
