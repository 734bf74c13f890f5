"""The operating system: locks, durable files, modes, processes, and running git.

The one module that knows about it, and the one that may look at the environment (only to hand a
cleaned copy to git).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gitmem.errors import ConflictError, CorruptError, UnavailableError

_DRAFT = ".gitmem-new"


def system_clock() -> datetime:
    """The present time; the default clock of a home."""
    return datetime.now(UTC)


@contextlib.contextmanager
def locked(path: str, seconds: float, *, shared: bool = False) -> Iterator[None]:
    """Hold the file `path` exclusively, also against other threads of this process.

    With `shared`, others that share may hold it too. The kernel frees the lock when its holder dies.

    Raises:
        UnavailableError: another process held it for `seconds`, or the file cannot be opened.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise UnavailableError(f"the lock {path} cannot be opened: {fault.strerror}.") from None
    try:
        if not _wait(lambda: _try_lock(handle, shared=shared), seconds):
            message = f"another gitmem command has held {path} for {seconds:g} seconds."
            raise UnavailableError(message, hint="Wait for it to end, then try again.")
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int, *, shared: bool) -> bool:
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(ready: Callable[[], bool], seconds: float, *, pause: float = 0.0002, longest: float = 0.02) -> bool:
    """Ask `ready` until it says yes, ever less often; False after `seconds`. Pauses grow up to `longest`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, longest)
    return True


wait = _wait


def read_bytes(path: str) -> bytes | None:
    """The file's bytes, or None where there is no such file.

    Raises:
        UnavailableError: it is there and cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        check_no_dead_link(path)
        return None
    except OSError as fault:
        raise UnavailableError(f"{path} cannot be read: {fault.strerror}.") from None
    try:
        data = os.read(handle, 65536)
        if len(data) < 65536:
            return data
        chunks = [data]
        while chunk := os.read(handle, 1 << 20):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError as fault:
        raise UnavailableError(f"{path} cannot be read: {fault.strerror}.") from None
    finally:
        os.close(handle)


def write_durable(path: str, data: bytes, mode: int = 0o644) -> None:
    """Replace the file `path` by `data`, whole or not at all, on disk when this returns."""
    draft = f"{path}.{os.getpid()}{_DRAFT}"
    try:
        write_new(draft, data, mode)
        os.replace(draft, path)
    except OSError as fault:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise UnavailableError(f"{path} cannot be written: {fault.strerror}.") from None
    sync_folder(os.path.dirname(path))


def is_draft(name: str) -> bool:
    """Whether a file of that name is what a killed `write_durable` left."""
    return name.endswith(_DRAFT)


def write_new(path: str, data: bytes, mode: int = 0o644) -> None:
    """Make the file `path`, which must not exist, and bring it to disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        _write_whole(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)


# Flushing several files at once costs little more than flushing one.
_flushers: ThreadPoolExecutor | None = None


def _forget_flushers() -> None:
    """A forked child has none of its parent's threads."""
    global _flushers  # noqa: PLW0603 - one pool for the process
    _flushers = None


os.register_at_fork(after_in_child=_forget_flushers)


def _flush_all(handles: Iterable[int]) -> None:
    global _flushers  # noqa: PLW0603
    if _flushers is None:
        _flushers = ThreadPoolExecutor(8, thread_name_prefix="gitmem-flush")
    list(_flushers.map(os.fsync, handles))


def write_all_durable(files: Mapping[str, bytes], draft: str) -> None:
    """Make files that nobody changes later, all on disk when this returns.

    Each is drafted under a name beginning with `draft` and then renamed, so that none is ever
    seen unfinished. The folders are made where they are missing.
    """
    mark = f"{draft}{os.getpid()}_{os.urandom(4).hex()}_"
    drafts = {path: f"{mark}{number}" for number, path in enumerate(files)}
    with contextlib.ExitStack() as stack:
        handles = []
        for path, data in files.items():
            handle = os.open(drafts[path], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            stack.callback(os.close, handle)
            _write_whole(handle, data)
            handles.append(handle)
        _flush_all(handles)
    folders = {os.path.dirname(draft)}
    for path in files:
        _move_into_place(drafts[path], path)
        folders.add(os.path.dirname(path))
    with contextlib.ExitStack() as stack:
        handles = []
        for folder in folders:
            # A `git gc` that has packed what was just written takes the empty folder away.
            with contextlib.suppress(FileNotFoundError):
                handles.append(os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
                stack.callback(os.close, handles[-1])
        _flush_all(handles)


def _move_into_place(draft: str, path: str) -> None:
    """Rename a file into a folder that another program may remove while it is empty."""
    for last in (False, False, False, True):
        try:
            os.rename(draft, path)
        except FileNotFoundError:
            if last:
                raise
            os.makedirs(os.path.dirname(path), exist_ok=True)
        else:
            return


def _write_whole(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def append_durable(path: str, data: bytes) -> None:
    """Add `data` to the end of the file."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: str) -> None:
    """Bring a folder's entries to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: str) -> bool:
    """Remove a file; whether it was there."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def list_folder(path: str) -> list[str]:
    """Sorted names in a folder; empty where it does not exist.

    Raises:
        UnavailableError: it is there and cannot be read. Absence is never guessed.
    """
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        check_no_dead_link(path)
        return []
    except OSError as fault:
        raise UnavailableError(f"the folder {path} cannot be read: {fault.strerror}.") from None


def check_no_dead_link(path: str) -> None:
    """Raise `UnavailableError` if the path is a link to nothing: what it leads to may be unmounted."""
    if os.path.islink(path):
        raise UnavailableError(f"{path} is a link to nothing.", hint="Mount or restore what it leads to.")


def check_folder(path: str) -> None:
    """Raise `UnavailableError` if something stands at the path and is no folder that can be read."""
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UnavailableError(f"{path} is not a folder.", hint="Mount or restore the folder.")


def age(path: str) -> float:
    """Seconds since the file was last changed."""
    return time.time() - os.stat(path).st_mtime


def age_or_zero(path: str) -> float:
    """`age`, and 0 for a file that has just gone."""
    try:
        return age(path)
    except FileNotFoundError:
        return 0.0


def make_private_folder(path: Path) -> None:
    """Make a folder only its owner can enter, with its parents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def check_free(target: Path) -> None:
    """Raise `ConflictError` unless a folder can be made at `target`: nothing is there, or an empty folder."""
    if target.exists() and not target.is_dir():
        raise ConflictError(f"{target} is a file.", hint="Choose a new folder.")
    if target.exists() and list_folder(str(target)):
        raise ConflictError(f"{target} is not empty.", hint="Choose a new folder.")


def draft_folder(target: Path) -> Path:
    """Where a folder is made before it gets its name `target`; what killed makers left is removed."""
    mark = f".{target.name}.gitmem-"
    for name in list_folder(str(target.parent)):
        pid = name.removeprefix(mark)
        if name.startswith(mark) and pid.isdigit() and not is_alive(int(pid)):
            remove_tree(target.parent / name)
    return target.with_name(f"{mark}{os.getpid()}")


def move_folder(draft: Path, target: Path) -> None:
    """Give a finished folder its name, which may be that of an empty folder.

    Raises:
        ConflictError: something was put there meanwhile.
    """
    try:
        draft.rename(target)
    except OSError as fault:
        message = f"{target} is not empty: somebody was faster ({fault.strerror})."
        raise ConflictError(message, hint="Choose a new folder.") from None


def is_private(path: Path) -> bool:
    """Whether nobody but the owner may enter the folder."""
    return not path.stat().st_mode & 0o077


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it."""
    shutil.rmtree(path)


def is_alive(pid: int) -> bool:
    """Whether a process of that number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def process_start(pid: int) -> str | None:
    """A mark of when the process began, to tell it from a later one of the same number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def process_mark(pid: int, between: str) -> str:
    """A process as a part of a file's name: its number, and when it began where the system tells."""
    return f"{pid}{between}{process_start(pid) or ''}"


def is_running(mark: str, between: str) -> bool:
    """Whether the process of a `process_mark` still runs: numbers alone are used again."""
    pid, _, start = mark.partition(between)
    return pid.isdigit() and process_start(int(pid)) == (start or None)


def receive_pack() -> int:
    """The process number of the git receive-pack that this process is a hook of; else of its parent."""
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if any(b"receive-pack" in word for word in words[:3]):
                return pid
            with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return os.getppid()


def process_age(pid: int) -> float:
    """Seconds since a process began; endless where the system does not tell."""
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            up = float(file.read().split()[0])
        return up - int(process_start(pid) or "") / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def interpreter() -> str:
    """The Python that runs this process, as an absolute path."""
    return os.path.abspath(sys.executable)


def pid_line() -> bytes:
    """What git writes into `gc.pid`: process number and host name."""
    return f"{os.getpid()} {socket.gethostname()}".encode()


def why_not(*command: str) -> str:
    """Why a program does not run to a good end, in one line; empty where it does."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            env=git_environment(),
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return (last[0] if last else f"exit code {done.returncode}") if done.returncode else ""


# Of the user's environment git gets only what it needs to run: no GIT_*, no user configuration.
_PASSED_ON = ("PATH", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH", "SSH_AUTH_SOCK", "HOME")
_GIT = (
    "git",
    "-c", "safe.directory=*",
    "-c", "core.quotePath=false",
    "-c", "core.hooksPath=/dev/null",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "core.fsync=all",
)  # fmt: skip


def git_environment() -> dict[str, str]:
    """The environment git runs in: that of the process without anything that steers git."""
    kept = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def git(
    repository: str, *arguments: str, data: bytes = b"", more: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Run git on a bare repository and return what it prints; `more` is added to its environment.

    Raises:
        UnavailableError: git is not installed.
        CorruptError: git failed; the message holds its first lines.
    """
    command = [*_GIT, "--git-dir", repository, *arguments]
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            env=git_environment() | dict(more),
            cwd=repository,
            check=False,
        )
    except FileNotFoundError:
        raise UnavailableError(
            "git is not installed, or not on PATH.", hint="Install git 2.31 or newer."
        ) from None
    if done.returncode:
        verb = _verb(arguments)
        # Some commands, fsck for one, tell their findings on stdout.
        output = done.stderr + b" " + (done.stdout if verb == "fsck" else b"")
        said = " ".join(output.decode("utf-8", "replace").split())[:400]
        raise CorruptError(f"git {verb} failed in {repository}: {said}", hint="Run gitmem doctor.")
    return done.stdout


def _verb(arguments: Sequence[str]) -> str:
    """The command of git among what follows `git`."""
    place = 0
    while arguments[place] in ("-C", "-c"):
        place += 2
    return arguments[place]


def git_at(place: str, *arguments: str) -> bytes:
    """What git prints when run in a folder, which it looks for a repository in and above.

    Raises:
        CorruptError: it failed.
    """
    done = subprocess.run(
        [*_GIT, "-C", place, *arguments], capture_output=True, env=git_environment(), check=False
    )
    if done.returncode:
        raise CorruptError(
            f"git {_verb(arguments)} failed in {place}: {done.stderr.decode('utf-8', 'replace')}"
        )
    return done.stdout


# What a way to another machine may need beside that.
_NETWORK = (
    "http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
    "GIT_SSH_VARIANT",
)  # fmt: skip


def ssh_command(default: str) -> str:
    """The user's own way to run ssh, else `default`."""
    return os.environ.get("GIT_SSH_COMMAND") or os.environ.get("GIT_SSH") or default


class Ran(NamedTuple):
    """What a program said before it ended."""

    code: int
    out: bytes
    err: bytes


def talk_git(
    folder: str, arguments: Sequence[str], more: Mapping[str, str], data: bytes, seconds: float
) -> Ran:
    """Run git where it talks to another repository, which may take `seconds` and never asks anybody.

    `more` is added to the environment. Hooks of the other side run as they always do.

    Raises:
        UnavailableError: git is not installed.
        TimeoutError: it took too long; it and all that it started were ended.
    """
    environment = git_environment() | {key: os.environ[key] for key in _NETWORK if key in os.environ}
    try:
        # In a session of its own it has no terminal to ask on, and can be ended as a whole.
        process = subprocess.Popen(
            ["git", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment | dict(more), cwd=folder, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise UnavailableError(
            "git is not installed, or not on PATH.", hint="Install git 2.31 or newer."
        ) from None
    with process:
        try:
            out, err = process.communicate(data, timeout=seconds)
        except BaseException as fault:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(fault, subprocess.TimeoutExpired):
                raise TimeoutError(f"no end after {seconds:g} seconds") from None
            raise
    return Ran(process.returncode, out, err)
