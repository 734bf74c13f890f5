"""The folder of a working copy: where its parts are, and how it is set up.

DIR/              `main`: gitmem.yaml, README.md
DIR/.git/         the one repository of all of it
DIR/D118/raw/…    an epoch, as a linked worktree
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import pygit2

from gitmem import host
from gitmem.errors import NotFoundError, RefusedError, UnavailableError
from gitmem.store.repository import Repository
from gitmem.store.worktrees import Worktree, clear_drafts, worktrees

ORIGIN = "origin"
TRACKING = f"refs/remotes/{ORIGIN}/"
UNFINISHED = "gitmem.new-"
_ATTRIBUTES = b"# Leaves are kept byte for byte.\n* -text\n"
_CONFIG = {
    "core.autocrlf": "false",
    "core.quotePath": "false",
    "pull.rebase": "true",
    "push.default": "simple",
    "push.autoSetupRemote": "true",
    "checkout.defaultRemote": ORIGIN,
    f"remote.{ORIGIN}.fetch": f"+refs/heads/*:{TRACKING}*",
}


@dataclass(slots=True)
class WorkingCopy:
    """An open working copy."""

    folder: str
    """Where `main` is checked out."""
    repository: Repository
    """Its `.git`."""
    url: str
    """Of the other side, as it stands in the configuration."""

    @property
    def gitdir(self) -> str:
        return self.repository.folder

    def worktrees(self) -> list[Worktree]:
        """`main` and the epochs."""
        return worktrees(self.gitdir)


def is_copy(folder: str | Path) -> bool:
    """Whether a folder is a working copy, or one of its epochs."""
    return os.path.lexists(os.path.join(folder, ".git"))


def open_copy(folder: str | Path, lock_seconds: float = 60) -> WorkingCopy:
    """The working copy at a folder, which may also be the folder of one of its epochs.

    Raises:
        NotFoundError: there is none.
        RefusedError: it is shallow or partial, or of a kind that cannot be purged.
    """
    gitdir = _gitdir(str(Path(folder).absolute()))
    config = pygit2.Config(f"{gitdir}/config")
    _check_whole(gitdir, config)
    name = f"remote.{ORIGIN}.url"
    url = config[name] if name in config else None  # noqa: SIM401 - it has no get of its own
    if not url:
        raise NotFoundError(
            f"{os.path.dirname(gitdir)} has no remote {ORIGIN}.", hint="git remote add origin URL"
        )
    return WorkingCopy(os.path.dirname(gitdir), Repository(gitdir, lock_seconds), url)


def _gitdir(folder: str) -> str:
    path = f"{folder}/.git"
    if os.path.isfile(path):
        link = os.fsdecode((host.read_bytes(path) or b"").strip()).removeprefix("gitdir: ")
        inner = os.path.normpath(os.path.join(folder, link))
        path = os.path.dirname(os.path.dirname(inner))
    if not os.path.isdir(f"{path}/objects") or os.path.basename(path) != ".git":
        raise NotFoundError(
            f"{folder} is no working copy of a persona.", hint="Make one: gitmem clone ROOT/PERSONA DIR."
        )
    return path


def _check_whole(gitdir: str, config: pygit2.Config) -> None:
    partial = [entry.name for entry in config if entry.name.endswith((".promisor", "partialclone"))]
    kind = "shallow" if os.path.exists(f"{gitdir}/shallow") else "partial" if partial else ""
    if kind:
        raise RefusedError(
            f"{os.path.dirname(gitdir)} is a {kind} clone: it lacks the history that a release rewrites.",
            hint="Push what is in it, then clone again: gitmem clone ROOT/PERSONA|URL NEWDIR.",
        )
    if "extensions.refstorage" in config or "extensions.objectformat" in config:
        raise RefusedError(
            f"{os.path.dirname(gitdir)} stores its refs or objects in a form that gitmem does not know.",
            hint="Clone again: gitmem clone ROOT/PERSONA|URL NEWDIR.",
        )


def make_folder(folder: Path, url: str) -> WorkingCopy:
    """An empty working copy in a new folder, with a configuration that keeps bytes as they are.

    `url` has no login in it.
    """
    gitdir = f"{folder}/.git"
    os.makedirs(gitdir)
    host.git(gitdir, "-C", str(folder), "init", "-q", "--template=", "--initial-branch=main")
    config = pygit2.Config(f"{gitdir}/config")
    for key, value in (_CONFIG | {f"remote.{ORIGIN}.url": url}).items():
        config[key] = value
    os.makedirs(f"{gitdir}/info", exist_ok=True)
    host.write_durable(f"{gitdir}/info/attributes", _ATTRIBUTES)
    return open_copy(folder)


def show_main(copy: WorkingCopy) -> None:
    """Check `main` out, following the other side's."""
    host.git(copy.gitdir, "-C", copy.folder, "checkout", "-q", "-b", "main", "--track", f"{ORIGIN}/main")


def add_epoch(copy: WorkingCopy, name: str) -> None:
    """Check an epoch out in a folder of its own, all at once.

    Raises:
        UnavailableError: git cannot do it; nothing was changed.
    """
    draft = f"{copy.gitdir}/{UNFINISHED}{os.getpid()}"
    path = f"{draft}/{name}"
    os.makedirs(draft, exist_ok=True)
    has_branch = copy.repository.refs.head(name) is not None
    what = [path, name] if has_branch else ["--track", "-b", name, path, f"{TRACKING}{name}"]
    host.git(copy.gitdir, "-C", copy.folder, "worktree", "add", "-q", *what)
    _follow(copy, name)
    gitdir = _loosen(copy.gitdir, path)
    hide(copy, name)
    try:
        os.rename(path, f"{copy.folder}/{name}")
        _place(gitdir, f"{copy.folder}/{name}")
    except OSError as fault:
        host.remove_tree(Path(path))
        host.remove_tree(Path(gitdir))
        raise UnavailableError(
            f"{copy.folder}/{name} cannot be made: {fault.strerror}.", hint="Move away what is there."
        ) from None
    finally:
        if not host.list_folder(draft):
            os.rmdir(draft)


def _follow(copy: WorkingCopy, name: str) -> None:
    """Let a branch that was here before follow the other side's, unless it follows something."""
    config = pygit2.Config(f"{copy.gitdir}/config")
    if f"branch.{name}.remote" not in config and copy.repository.refs.read(TRACKING + name) is not None:
        host.git(copy.gitdir, "branch", "-q", f"--set-upstream-to={ORIGIN}/{name}", name)


def _loosen(gitdir: str, path: str) -> str:
    """Let the worktree at `path` name its git folder, which is returned, by a path that moves with DIR."""
    name = os.path.basename(os.fsdecode((host.read_bytes(f"{path}/.git") or b"").strip()))
    host.write_durable(f"{path}/.git", b"gitdir: ../.git/worktrees/" + os.fsencode(name) + b"\n")
    return f"{gitdir}/worktrees/{name}"


def _place(gitdir: str, folder: str) -> None:
    """Note where the worktree of a git folder stands."""
    host.write_durable(f"{gitdir}/gitdir", os.fsencode(folder) + b"/.git\n")


def reconnect(copy: WorkingCopy) -> None:
    """Put right what a moved DIR, or a killed `add_epoch`, left. Call under the repository's lock."""
    clear_drafts(copy.gitdir)
    for name in host.list_folder(copy.gitdir):
        pid = name.removeprefix(UNFINISHED)
        if name.startswith(UNFINISHED) and not (pid.isdigit() and host.is_alive(int(pid))):
            host.remove_tree(Path(copy.gitdir) / name)
    for each in copy.worktrees()[1:]:
        if each.is_there:
            continue
        moved = f"{copy.folder}/{each.name}"
        if _leads_to(moved, each.gitdir):
            _place(each.gitdir, moved)
        elif f"/{UNFINISHED}" in each.folder:
            host.remove_tree(Path(each.gitdir))
        else:
            _find_again(moved, each)


def _leads_to(folder: str, gitdir: str) -> bool:
    link = os.fsdecode((host.read_bytes(f"{folder}/.git") or b"").strip()).removeprefix("gitdir: ")
    return bool(link) and os.path.realpath(os.path.join(folder, link)) == os.path.realpath(gitdir)


def _find_again(folder: str, worktree: Worktree) -> None:
    """A worktree that plain git made holds an absolute path; both moved with DIR."""
    link = os.fsdecode((host.read_bytes(f"{folder}/.git") or b"").strip())
    if os.path.isfile(f"{folder}/.git") and os.path.basename(link) == os.path.basename(worktree.gitdir):
        host.write_durable(f"{folder}/.git", b"gitdir: " + os.fsencode(worktree.gitdir) + b"\n")
        _place(worktree.gitdir, folder)


def hide(copy: WorkingCopy, name: str) -> None:
    """Let `git status` of `main` say nothing about the folder of an epoch."""
    path = f"{copy.gitdir}/info/exclude"
    data = host.read_bytes(path) or b""
    line = f"/{name}/".encode()
    if line not in data.splitlines():
        host.write_durable(path, data + (b"" if data.endswith(b"\n") or not data else b"\n") + line + b"\n")


def git_in(folder: str, *words: str) -> str:
    """A command line for git in a folder."""
    return quoted("git", "-C", folder, *words)


def quoted(*words: str) -> str:
    """A command line that a shell takes word for word."""
    return shlex.join(words)
