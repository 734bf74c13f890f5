"""Waiting until nobody else rearranges a repository: git's own maintenance, and checked pushes."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator

from gitmem import host

IN_FLIGHT = "gitmem.inflight"
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
    line = (host.read_bytes(gc_path) or b"").decode("utf-8", "replace").split()
    if line:
        elsewhere = len(line) > 1 and line[1] != socket.gethostname()
        if elsewhere or (line[0].isdigit() and host.is_alive(int(line[0]))):
            return f"git gc (process {line[0]})"
        host.remove(gc_path)
    for name in host.list_folder(f"{folder}/objects/pack"):
        match = _REPACK.match(name)
        if match and host.is_alive(int(match[1])):
            return f"git repack (process {match[1]})"
    return _pushes(folder)


def _pushes(folder: str) -> str:
    """Pushes that passed the hook and still rely on objects of this repository."""
    for name in host.list_folder(f"{folder}/{IN_FLIGHT}"):
        pid, _, start = name.partition("-")
        if pid.isdigit() and host.process_start(int(pid)) == start:
            return f"a push (process {pid})"
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{IN_FLIGHT}/{name}")
    return ""
