"""The same work done by git itself, one process for each step."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_GIT = ("git", "-c", "core.fsync=all", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
_WHO = "conversation"


def environment(**more: str) -> dict[str, str]:
    """An environment in which git sees no configuration of the user."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    names = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", _WHO), ("EMAIL", f"{_WHO}@localhost.invalid"))
    }
    quiet = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": os.devnull}
    return kept | names | quiet | more


def git(repository: Path, *arguments: str, data: bytes = b"", **more: str) -> str:
    """Run git on a bare repository; what it prints, without the last line end."""
    done = subprocess.run(
        [*_GIT, "--git-dir", str(repository), *arguments],
        input=data,
        capture_output=True,
        env=environment(**more),
        check=True,
        close_fds=False,
    )
    return done.stdout.decode().rstrip("\n")


class Plumbing:
    """Commits files to one branch with git's plumbing, its index kept from commit to commit."""

    def __init__(self, repository: Path, branch: str) -> None:
        self._repository = repository
        self._ref = f"refs/heads/{branch}"
        self._index = str(repository / "plumbing.index")
        self._git("read-tree", self._ref)
        self._tip = self._git("rev-parse", self._ref)

    def _git(self, *arguments: str, data: bytes = b"") -> str:
        return git(self._repository, *arguments, data=data, GIT_INDEX_FILE=self._index)

    def commit(self, files: Mapping[str, bytes], message: str) -> None:
        """One durable commit that adds these files: 4 processes, and one more for each file."""
        entries = ""
        for path, data in files.items():
            blob = self._git("hash-object", "-w", "--stdin", data=data)
            entries += f"100644 {blob}\t{path}\n"
        self._git("update-index", "--index-info", data=entries.encode())
        tree = self._git("write-tree")
        commit = self._git("commit-tree", tree, "-p", self._tip, "-m", message)
        self._git("update-ref", self._ref, commit, self._tip)
        self._tip = commit
