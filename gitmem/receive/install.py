"""Putting the hooks into a repository, taking them out again, and looking whether they work.

The hooks stand in `hooks/NAME.d/10-gitmem`, where both hook layouts of Forgejo run them. Where
nothing at `hooks/NAME` runs that folder, a delegate is put there; a hook that stood there moves
to `hooks/NAME.before-gitmem` and is run first. `core.hooksPath` is never set.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pygit2

from gitmem import host
from gitmem.errors import RefusedError, UnavailableError, UsageError

NAMES = ("pre-receive", "post-receive")
RECORD = "gitmem.hooks"
"""In a repository: folders that the installation made, to be removed with it."""
_FILE = "10-gitmem"
_BEFORE = ".before-gitmem"
_MARK = b"# gitmem: runs the hook that stood here before"
_OURS = b"-m gitmem hook "
_PYTHON = b"python='python3'"


@dataclass(frozen=True, slots=True)
class HookStatus:
    """How one hook of a repository stands."""

    name: str
    state: str
    """`ready`, `missing`, `old` (of another gitmem or Python) or `broken`."""
    detail: str = ""

    def as_dict(self) -> dict[str, str]:
        out = {"hook": self.name, "state": self.state}
        return out | ({"detail": self.detail} if self.detail else {})


def _template(name: str) -> bytes:
    """A file of the folder `hooks`: beside this module where gitmem is installed, else in the source tree."""
    here = Path(__file__).resolve()
    for folder in (here.with_name("hooks"), here.parents[2] / "hooks"):
        data = host.read_bytes(str(folder / name))
        if data is not None:
            return data
    message = f"gitmem's hook {name} is missing from its installation."
    raise UnavailableError(message, hint="Install gitmem again.")


def _script(name: str, python: str) -> bytes:
    line = b"python=" + shlex.quote(python).encode("utf-8", "surrogateescape")
    return _template(name).replace(_PYTHON, line)


def _check_repository(folder: str) -> None:
    if os.path.isdir(f"{folder}/.git"):
        raise UsageError(
            f"{folder} is a working copy; pushes go to bare repositories.", hint="Name REPO.git."
        )
    if not (os.path.isfile(f"{folder}/HEAD") and os.path.isdir(f"{folder}/objects")):
        raise UsageError(
            f"{folder} is no bare git repository.", hint="Name the folder that holds HEAD and objects."
        )
    if os.path.islink(f"{folder}/hooks"):
        real = os.path.realpath(f"{folder}/hooks")
        raise RefusedError(f"{folder}/hooks is a link to {real}, which other repositories may share.")


def _own_hooks_path(folder: str) -> str:
    """`core.hooksPath` in the repository's own configuration; it keeps git from its hooks."""
    try:
        return str(pygit2.Config(f"{folder}/config")["core.hookspath"])
    except (KeyError, pygit2.GitError):
        return ""


def install(folder: str) -> list[str]:
    """Put both hooks into a bare repository; what was done, in words. Again is harmless.

    Raises:
        UsageError: it is no bare repository.
        RefusedError: its `core.hooksPath`, or a link, would make the hooks run nowhere or everywhere.
        UnavailableError: a file cannot be written, or this Python cannot run gitmem by itself.
    """
    folder = os.path.abspath(folder)
    _check_repository(folder)
    for name in NAMES:
        there = f"{folder}/hooks/{name}.d/{_FILE}"
        if os.path.lexists(there) and _OURS not in _bytes_of(there):
            raise RefusedError(f"{there} is not a hook of gitmem.", hint="Give it another name.")
    path = _own_hooks_path(folder)
    if path:
        message = f"core.hooksPath of {folder} is {path}: git would not run its own hooks."
        raise RefusedError(message, hint=f"git -C {shlex.quote(folder)} config --unset core.hooksPath")
    return place(folder, host.interpreter())


def place(folder: str, python: str) -> list[str]:
    """Write the hooks of a repository that may have them; see `install`."""
    wanted = [f"{folder}/hooks", *(f"{folder}/hooks/{name}.d" for name in NAMES)]
    missing = [os.path.relpath(path, folder) for path in wanted if not os.path.isdir(path)]
    made = sorted({*_made(folder), *missing})
    try:
        host.write_durable(f"{folder}/{RECORD}", json.dumps({"made": made}).encode() + b"\n")
        for path in wanted:
            os.makedirs(path, exist_ok=True)
        said = []
        for name in NAMES:
            host.write_durable(f"{folder}/hooks/{name}.d/{_FILE}", _script(name, python), 0o755)
            said.append(f"hooks/{name}.d/{_FILE}" + _delegate(folder, name))
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UnavailableError(f"the hooks of {folder} cannot be written: {reason}.") from None
    return said


def _made(folder: str) -> list[str]:
    try:
        raw = json.loads(host.read_bytes(f"{folder}/{RECORD}") or b"{}")
        return [str(name) for name in raw.get("made", [])]
    except (ValueError, AttributeError):
        return []


def _delegate(folder: str, name: str) -> str:
    """See to it that something at `hooks/NAME` runs the folder; what was done, to go behind its name."""
    path = f"{folder}/hooks/{name}"
    new = _template("delegate")
    if not os.path.lexists(path):
        host.write_durable(path, new, 0o755)
        return f", run by hooks/{name}"
    old = _bytes_of(path)
    if _MARK in old:
        if old != new:
            host.write_durable(path, new, 0o755)
        return f", run by hooks/{name}"
    if f"{name}.d".encode() in old:
        return f", run by the hooks/{name} that is there"
    if os.path.lexists(path + _BEFORE):
        message = f"{path} and {path}{_BEFORE} both exist."
        raise RefusedError(message, hint="One of them was put there after an installation; move it away.")
    host.write_durable(path + ".gitmem-delegate", new, 0o755)
    os.rename(path, path + _BEFORE)
    os.rename(path + ".gitmem-delegate", path)
    return f", run by hooks/{name} after the hook that was there"


def _bytes_of(path: str) -> bytes:
    try:
        return host.read_bytes(path) or b""
    except UnavailableError:
        return b""


def uninstall(folder: str) -> list[str]:
    """Take the hooks out; what was done. Every other byte stays as it was before the installation."""
    folder = os.path.abspath(folder)
    _check_repository(folder)
    said = []
    try:
        for name in NAMES:
            path = f"{folder}/hooks/{name}"
            if _OURS in _bytes_of(f"{path}.d/{_FILE}") and host.remove(f"{path}.d/{_FILE}"):
                said.append(f"hooks/{name}.d/{_FILE} is removed")
            host.remove(path + ".gitmem-delegate")
            ours = _MARK in _bytes_of(path)
            if os.path.lexists(path + _BEFORE) and (ours or not os.path.lexists(path)):
                os.rename(path + _BEFORE, path)
                said.append(f"hooks/{name} is what it was before")
            elif ours:
                host.remove(path)
        for made in sorted(_made(folder), reverse=True):
            where = os.path.normpath(f"{folder}/{made}")
            if where.startswith(f"{folder}/hooks") and os.path.isdir(where) and not os.listdir(where):
                os.rmdir(where)
        host.remove(f"{folder}/{RECORD}")
    except OSError as fault:
        raise UnavailableError(f"the hooks of {folder} cannot be changed: {fault.strerror}.") from None
    return said


def status(folder: str) -> list[HookStatus]:
    """How each hook stands; the Python it names is really run."""
    folder = os.path.abspath(folder)
    _check_repository(folder)
    return [_status(folder, name) for name in NAMES]


def _status(folder: str, name: str) -> HookStatus:
    path = f"{folder}/hooks/{name}.d/{_FILE}"
    data = _bytes_of(path)
    if not data:
        return HookStatus(name, "missing", f"run gitmem hooks install {shlex.quote(folder)}")
    if hooks_path := _own_hooks_path(folder):
        return HookStatus(name, "broken", f"core.hooksPath is {hooks_path}: git does not run hooks/{name}")
    if not os.access(path, os.X_OK):
        return HookStatus(name, "broken", f"{path} is not executable")
    python = _python_of(data)
    fault = _why_not(python)
    if fault:
        return HookStatus(name, "broken", f"{python} cannot run gitmem: {fault}")
    if data != _script(name, python) or not _same(python, host.interpreter()):
        return HookStatus(name, "old", f"written for {python}; gitmem hooks install renews it")
    if not _runs(f"{folder}/hooks/{name}", name):
        return HookStatus(
            name, "broken", f"hooks/{name} does not run hooks/{name}.d; gitmem hooks install mends it"
        )
    return HookStatus(name, "ready")


def _runs(path: str, name: str) -> bool:
    """Whether what stands at `hooks/NAME` runs the hooks of the folder."""
    data = _bytes_of(path)
    return os.access(path, os.X_OK) and (_MARK in data or f"{name}.d".encode() in data)


def _same(one: str, other: str) -> bool:
    """Whether two names are of one Python: `python` and `python3` of an environment are."""
    return os.path.dirname(one) == os.path.dirname(other) and os.path.realpath(one) == os.path.realpath(other)


@lru_cache(maxsize=16)
def _why_not(python: str) -> str:
    """Why a Python cannot run the hooks; asked once in a process, for all repositories."""
    return host.why_not(python, "-I", "-c", "import gitmem.receive.hook")


def _python_of(script: bytes) -> str:
    line = next((line for line in script.splitlines() if line.startswith(b"python=")), b"python=''")
    try:
        return shlex.split(line.decode("utf-8", "surrogateescape"))[0].removeprefix("python=")
    except ValueError:
        return ""
