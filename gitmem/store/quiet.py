"""Waiting until nobody else rearranges a repository: git's own maintenance, and checked pushes."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator

from gitmem import host

IN_FLIGHT = "gitmem.inflight"
_STALE = 12 * 3600
_REPACK = re.compile(r"\.tmp-(\d+)-pack")


@contextlib.contextmanager
def quiet(folder: str, seconds: float) -> Iterator[str]:
    """Hold off `git gc` while the block runs; yields "" or what was still running after `seconds`.

    Held off: git itself refuses a second gc while `gc.pid` names a living process.
    """
    path = f"{folder}/gc.pid"
    if not host.wait(lambda: not busy(folder, path) and _take(path), seconds):
        yield busy(folder, path) or "another program"
        return
    try:
        yield ""
    finally:
        host.remove(path)


def _take(path: str) -> bool:
    try:
        host.write_new(path, host.pid_line())
    except FileExistsError:
        return False
    return True


def busy(folder: str, gc_path: str) -> str:
    """What is running on the repository right now, in words; empty if nothing is."""
    if line := _holder(gc_path):
        return f"git gc (process {line})"
    for name in host.list_folder(f"{folder}/objects/pack"):
        match = _REPACK.match(name)
        if match and host.is_alive(int(match[1])):
            return f"git repack (process {match[1]})"
    return _pushes(folder)


def _holder(gc_path: str) -> str:
    """The process that `gc.pid` names, while it may be at work; a left-over file is removed.

    As git has it: a file of more than twelve hours means nothing, nor does one that is not a
    process number and a host, or names a dead process.
    """
    data = host.read_bytes(gc_path)
    if data is None:
        return ""
    words = data.decode("utf-8", "replace").split()
    if len(words) == 2 and words[0].isdigit() and host.age_or_zero(gc_path) < _STALE:
        pid, name = words
        if name != socket.gethostname() or host.is_alive(int(pid)):
            return pid
    host.remove(gc_path)
    return ""


def _pushes(folder: str) -> str:
    """Pushes that passed the hook and still rely on objects of this repository."""
    pids = forget_ended(folder)
    return f"a push (process {pids[0]})" if pids else ""


def forget_ended(folder: str) -> list[str]:
    """Remove the notes of pushes that have ended; the processes of those that have not."""
    running = []
    for name in host.list_folder(f"{folder}/{IN_FLIGHT}"):
        if host.is_running(name, "-"):
            running.append(name.partition("-")[0])
            continue
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{IN_FLIGHT}/{name}")
    return running
