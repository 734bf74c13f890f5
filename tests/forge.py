"""A Forgejo for tests, as git sees one: its folders, its hooks, its environment, its ways to push.

No Forgejo runs here. What is imitated was read in its sources: the repositories and the private
HOME of git, the delegate scripts of versions up to 15 (in each repository) and from 16 on (in that
HOME), the variables that hooks get, smart HTTP, SSH, AGit, and edits made in a browser.

    def test_it(forge):                     # twice, once in each layout; `make_forge(layout)` makes one
        folder = forge.create()             # ROOT/ym001/zy001.git, empty
        with forge.http() as server:
            work = forge.clone("a", via="http", user="zhuyuan", server=server)   # or "ssh", "file"
            work.orphan("D1")
            work.commit({"raw/20260531-115447.txt": "雨"})
            assert work.push("HEAD:refs/heads/D1").code == 0
        forge.refuse()                      # the forge's own hook refuses from now on
        forge.edit("bingshuo", "D1", {"raw/20260531-115448.txt": b"x"})          # in the browser

The layout "plain" is no forge: a bare repository as `git init --bare` makes it, over http with
GITMEM_PUSHER_NAME.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from tests.forge_http import LONGEST, Server

Layout = Literal["plain", "v15", "v16"]
Transport = Literal["http", "ssh", "file"]
OWNER, REPO = "YM001", "ZY001"
TOKENS = {
    "token-of-zhuyuan": "zhuyuan",
    "token-of-bingshuo": "bingshuo",
    "token-of-admin": "admin",
}
"""Passwords and whose they are: the persona's account, its human's, the operator's."""
HOOKS = ("pre-receive", "update", "post-receive")
_ZERO = "0" * 40

# Up to version 15, in each repository. All hooks run, the first failure is the answer.
_DELEGATE_V15 = """#!/usr/bin/env bash
said=$(cat)
codes=()
for hook in "${GIT_DIR}/hooks/%(name)s.d/"*; do
  [ -x "$hook" ] && [ -f "$hook" ] || continue
  echo "$said" | "$hook"
  codes+=($?)
done
for code in "${codes[@]}"; do
  [ "$code" -eq 0 ] || exit "$code"
done
exit 0
"""
_UPDATE_V15 = _DELEGATE_V15.replace("said=$(cat)\n", "").replace('echo "$said" | "$hook"', '"$hook" $1 $2 $3')

# From version 16 on, once for all repositories: the forge's own hooks, then the repository's.
_DELEGATE_V16 = """#!/usr/bin/env bash
said=$(cat)
codes=()
for hook in "%(central)s/%(name)s.d/"* "./hooks/%(name)s.d/"*; do
  [ -x "$hook" ] && [ -f "$hook" ] || continue
  case "$hook" in ./*/gitea) continue ;; esac
  echo "$said" | "$hook"
  codes+=($?)
done
for code in "${codes[@]}"; do
  [ "$code" -eq 0 ] || exit "$code"
done
exit 0
"""
_UPDATE_V16 = _DELEGATE_V16.replace("said=$(cat)\n", "").replace(
    'echo "$said" | "$hook"', '"$hook" "$1" "$2" "$3"'
)

# The forge's own check. It writes down what it saw, and refuses when the test says so.
_STUB = """#!/bin/sh
log=%(log)s
{
  echo "hook %(name)s in $(pwd)"
  env | grep -E '^(GITEA_|SSH_ORIGINAL|GIT_PUSH_OPTION|LC_ALL|HOME|PATH)' | sort
  [ "%(name)s" = update ] && echo "$1 $2 $3" || cat
  echo .
} >> "$log"
[ ! -e %(refuse)s ] || { echo "Forge: %(name)s says no"; exit 1; }
"""
_STALE = """#!/bin/sh
echo "a hook that is no longer in use was run: $0"
exit 1
"""

# AGit: what is pushed to refs/for/BRANCH/TOPIC becomes a pull request.
_PROC_RECEIVE = """#!{python} -I
import subprocess, sys

def read():
    size = int(sys.stdin.buffer.read(4), 16)
    return sys.stdin.buffer.read(size - 4) if size else None

def write(text):
    data = text.encode()
    sys.stdout.buffer.write(b"%04x%s" % (len(data) + 4, data))

def lines():
    return iter(read, None)

offered = b"".join(lines()).split(b"\\0")[-1].split()
options = b"push-options" in offered
write("version=1\\0push-options\\n" if options else "version=1\\n")
sys.stdout.buffer.write(b"0000")
sys.stdout.buffer.flush()
commands = [line.decode().split() for line in lines()]
if options:
    list(lines())
for number, (old, new, ref) in enumerate(commands, 1):
    pull = f"refs/pull/{{number}}/head"
    subprocess.run(["git", "update-ref", pull, new], check=True)
    write(f"ok {{ref}}\\n")
    write(f"option refname {{pull}}\\n")
    write(f"option new-oid {{new}}\\n")
sys.stdout.buffer.write(b"0000")
sys.stdout.buffer.flush()
"""

# Stands in for ssh: reads the git command, and runs it as the forge's serv command does.
_SSH = """#!{python} -I
import os, shlex, sys
verb, place = shlex.split(sys.argv[-1])
owner, _, repo = place.strip("/").removesuffix(".git").partition("/")
environment = {environment!r}
environment |= {{
    "GITEA_REPO_USER_NAME": {owner!r} if owner.lower() == {owner!r}.lower() else owner,
    "GITEA_REPO_NAME": repo.removesuffix(".wiki"),
    "GITEA_REPO_IS_WIKI": "true" if repo.endswith(".wiki") else "false",
    "SSH_ORIGINAL_COMMAND": sys.argv[-1],
}}
if {version_two!r} and "GIT_PROTOCOL" in os.environ:
    environment["GIT_PROTOCOL"] = os.environ["GIT_PROTOCOL"]
folder = os.path.join({root!r}, owner.lower(), repo.lower() + ".git")
os.execve({git!r}, ["git", verb.removeprefix("git-"), folder], environment)
"""

_CONFIG = """[core]
	quotePath = false
	logAllRefUpdates = true
	commitGraph = true
[gc]
	reflogExpire = 90
	writeCommitGraph = true
[fetch]
	writeCommitGraph = true
[diff]
	algorithm = histogram
[receive]
	advertisePushOptions = true
	procReceiveRefs = refs/for
	hideRefs = refs/pull/
[uploadpack]
	allowfilter = true
	allowAnySHA1InWant = true
[safe]
	directory = *
[user]
	name = Gitea
	email = gitea@fake.local
[http]
	receivepack = true
"""
_CONFIG_V16 = """[core]
	hooksPath = {hooks}
[transfer]
	fsckObjects = true
"""


@dataclass(frozen=True)
class Answer:
    """What a git command said."""

    code: int
    out: bytes
    text: str
    """What it said on stderr, where the lines of hooks are."""

    @property
    def remote(self) -> list[str]:
        """The lines that the other side said."""
        lines = (line.strip() for line in self.text.splitlines())
        return [line.removeprefix("remote:").strip() for line in lines if line.startswith("remote:")]


def write_script(path: Path, text: str) -> Path:
    """An executable file, whole before anybody can run it; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


@dataclass
class Forge:
    """One installation. Everything is below `top`."""

    top: Path
    layout: Layout
    path: str = "/usr/local/bin:/usr/bin:/bin"
    """PATH of everything that runs on the server."""
    extra: dict[str, str | None] = field(default_factory=dict)
    """Further variables of the server; None takes one away."""

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True)
        self.home.mkdir()
        self.log.touch()
        if self.layout == "plain":
            return
        config = _CONFIG
        if self.layout == "v16":
            config += _CONFIG_V16.format(hooks=self.hooks)
            self._central_hooks()
        (self.home / ".gitconfig").write_text(config, "utf-8")

    # -- places ------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder of all repositories."""
        return self.top / "repositories"

    @property
    def home(self) -> Path:
        """HOME of git on the server."""
        return self.top / "git-home"

    @property
    def hooks(self) -> Path:
        """Where version 16 keeps the hooks of all repositories."""
        return self.home / "hooks"

    @property
    def log(self) -> Path:
        """What the forge's own hooks wrote down."""
        return self.top / "forge.log"

    def folder(self, owner: str = OWNER, repo: str = REPO) -> Path:
        """The bare repository; names on disk are lower case."""
        return self.root / owner.lower() / f"{repo.lower()}.git"

    # -- what an administrator does ----------------------------------------------------------

    def create(self, owner: str = OWNER, repo: str = REPO, *, stale: bool = True) -> Path:
        """An empty repository, as the forge makes it.

        `stale`: in the v16 layout, one that was made by an earlier version and upgraded: its old
        hooks are still there, and fail if they are run.
        """
        folder = self.folder(owner, repo)
        command = ["git", "init", "-q", "--bare", "-b", "main"]
        command += ["--template="] if self.layout == "v16" else []
        subprocess.run([*command, str(folder)], check=True, env=self.environment())
        if self.layout == "v15":
            self.regenerate_hooks(folder)
        if self.layout == "v16" and stale:
            for name in HOOKS:
                text = _UPDATE_V15 if name == "update" else _DELEGATE_V15
                write_script(folder / "hooks" / name, text % {"name": name})
                write_script(folder / "hooks" / f"{name}.d" / "gitea", _STALE)
        return folder

    def regenerate_hooks(self, folder: Path) -> None:
        """What v15 does to a repository now and then: its delegates and its own hooks are written anew."""
        for name in HOOKS:
            text = _UPDATE_V15 if name == "update" else _DELEGATE_V15
            write_script(folder / "hooks" / name, text % {"name": name})
            write_script(folder / "hooks" / f"{name}.d" / "gitea", self._stub(name))
        write_script(folder / "hooks" / "proc-receive", _PROC_RECEIVE.format(python=sys.executable))
        write_script(folder / "hooks" / "proc-receive.d" / "gitea", "")

    def _central_hooks(self) -> None:
        for name in HOOKS:
            text = _UPDATE_V16 if name == "update" else _DELEGATE_V16
            write_script(self.hooks / name, text % {"name": name, "central": self.hooks})
            write_script(self.hooks / f"{name}.d" / "gitea", self._stub(name))
        write_script(self.hooks / "proc-receive", _PROC_RECEIVE.format(python=sys.executable))

    def _stub(self, name: str) -> str:
        words = {
            "name": name,
            "log": shlex.quote(str(self.log)),
            "refuse": shlex.quote(str(self._refusal(name))),
        }
        return _STUB % words

    def _refusal(self, name: str) -> Path:
        return self.top / f"refuse-{name}"

    def refuse(self, name: str = "pre-receive", *, yes: bool = True) -> None:
        """Let the forge's own hook refuse every push from now on, or no longer."""
        if yes:
            self._refusal(name).touch()
        else:
            self._refusal(name).unlink()

    def git(self, folder: Path, *arguments: str, check: bool = True) -> bytes:
        """What git prints when the administrator runs it on the server."""
        command = ["git", "-C", str(folder), *arguments]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, timeout=LONGEST, check=False
        )
        assert not check or done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return done.stdout

    # -- the environment of the server -------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """What everything on the server gets."""
        world: dict[str, str | None] = {
            "HOME": str(self.home),
            "PATH": self.path,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "LC_ALL": "C",
        }
        world |= self.extra
        return {name: value for name, value in world.items() if value is not None}

    def push_environment(self, user: str, owner: str, repo: str, command: str) -> dict[str, str]:
        """What a hook gets: who pushes, to what, and how. Owner and repository are as typed."""
        said = {
            "GITEA_REPO_USER_NAME": owner,
            "GITEA_REPO_NAME": repo.removesuffix(".wiki"),
            "GITEA_REPO_IS_WIKI": "true" if repo.lower().endswith(".wiki") else "false",
            "GITEA_REPO_ID": "1",
            "GITEA_PUSHER_NAME": user,
            "GITEA_PUSHER_ID": str(1 + sorted({user, *TOKENS.values()}).index(user)),
            "GITEA_PUSHER_EMAIL": f"{user}@noreply.localhost",
            "GITEA_ROOT_URL": "http://127.0.0.1/",
            "SSH_ORIGINAL_COMMAND": command,
        }
        return self.environment() | ({} if self.layout == "plain" else said)

    def _http_environment(self, user: str, owner: str, repo: str, protocol: str) -> dict[str, str]:
        world = self.push_environment(user, owner, repo, "receive-pack")
        if self.layout == "plain":
            world |= {"REMOTE_USER": user, "GITMEM_PUSHER_NAME": user}
        return world | ({"GIT_PROTOCOL": protocol, "HTTP_GIT_PROTOCOL": protocol} if protocol else {})

    # -- ways to push ------------------------------------------------------------------------

    @contextlib.contextmanager
    def http(self, tokens: Mapping[str, str] = TOKENS) -> Iterator[Server]:
        """Serve all repositories on loopback while the block runs."""
        with Server(self.root, tokens, self._http_environment).running() as server:
            yield server

    def ssh(self, user: str, *, version_two: bool = True) -> Path:
        """A program for GIT_SSH_COMMAND that lets `user` in, named as git knows ssh.

        `version_two`: whether the server's sshd passes GIT_PROTOCOL on.
        """
        environment = self.push_environment(user, OWNER, REPO, "") | {"GITEA_KEY_ID": "7", "GITEA_PR_ID": "0"}
        environment.pop("LC_ALL", None)
        text = _SSH.format(
            python=sys.executable,
            environment=environment,
            owner=OWNER,
            root=str(self.root),
            git=shutil.which("git"),
            version_two=version_two,
        )
        return write_script(self.top / f"ssh-of-{user}-{version_two}" / "ssh", text)

    def receive_pack(self) -> Path:
        """A program for `--receive-pack`: the administrator pushes to the path, as the server's user."""
        world = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.environment().items())
        passed = '${GITMEM_PUSHER_NAME+GITMEM_PUSHER_NAME="$GITMEM_PUSHER_NAME"}'
        passed += ' ${GITMEM_PUSHER_ROLE+GITMEM_PUSHER_ROLE="$GITMEM_PUSHER_ROLE"}'
        return write_script(
            self.top / "receive-pack", f'#!/bin/sh\nexec env -i {world} {passed} git receive-pack "$@"\n'
        )

    def edit(
        self,
        user: str,
        branch: str,
        files: Mapping[str, bytes | None],
        *,
        owner: str = OWNER,
        repo: str = REPO,
        new_branch: str | None = None,
        api: bool = False,
        message: str | None = None,
    ) -> Answer:
        """Save files in the browser, or through the REST API: a clone, a commit, a push.

        None removes a file. The browser's editor takes every carriage return out; the API keeps
        bytes. The answer is what the editor shows in its box where the push was refused.
        """
        world = self.push_environment(user, owner, repo, "gitea-internal") | _person(user)
        draft = self.top / f"edit-{len(list(self.top.glob('edit-*')))}"

        def git(*arguments: str, data: bytes = b"") -> bytes:
            done = subprocess.run(
                ["git", *arguments],
                input=data,
                env=world | {"GIT_INDEX_FILE": str(draft / "index")},
                cwd=draft if draft.exists() else self.top,
                capture_output=True,
                timeout=LONGEST,
                check=True,
            )
            return done.stdout.strip()

        folder = self.folder(owner, repo)
        git("clone", "-q", "-s", "--bare", "-b", branch, str(folder), str(draft))
        git("read-tree", "HEAD")
        for path, data in files.items():
            if data is None:
                git("update-index", "-z", "--index-info", data=f"0 {_ZERO}\t{path}\0".encode())
                continue
            text = data if api else data.replace(b"\r", b"")
            blob = git("hash-object", "-w", "--stdin", data=text).decode()
            git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        tree = git("write-tree").decode()
        said = (message or f"更新 {next(iter(files))}").encode()
        commit = git("commit-tree", tree, "-p", "HEAD", data=said).decode()
        command = ["git", "push", str(folder), f"{commit}:refs/heads/{new_branch or branch}"]
        return _run(command, draft, world)

    def clone(
        self,
        name: str,
        *,
        via: Transport = "http",
        user: str = "zhuyuan",
        owner: str = OWNER,
        repo: str = REPO,
        server: Server | None = None,
    ) -> Clone:
        """A working copy of a repository, empty where that is empty; `server` where it is over http."""
        folder = self.top / "clones" / name
        world: dict[str, str] = {}
        settings: dict[str, str] = {}
        if via == "http":
            assert server is not None
            token = next(token for token, whose in server.tokens.items() if whose == user)
            url = server.url(f"{owner}/{repo}", user, token)
        elif via == "ssh":
            url = f"git@localhost:{owner}/{repo}.git"
            world["GIT_SSH_COMMAND"] = str(self.ssh(user))
        else:
            url = str(self.folder(owner, repo))
            world["GITMEM_PUSHER_NAME"] = user
            settings["remote.origin.receivepack"] = str(self.receive_pack())
        return Clone.make(folder, url, world, settings)


def _person(user: str) -> dict[str, str]:
    who = {"NAME": user, "EMAIL": f"{user}@noreply.localhost", "DATE": "2026-06-01T08:00:00+0800"}
    return {f"GIT_{part}_{key}": value for part in ("AUTHOR", "COMMITTER") for key, value in who.items()}


def _run(command: list[str], folder: Path, world: Mapping[str, str], data: bytes = b"") -> Answer:
    done = subprocess.run(
        command, input=data, cwd=folder, env=world, capture_output=True, timeout=LONGEST, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


Entry = tuple[int, bytes]
"""Mode and bytes of a file; of a submodule, the 20 bytes of its commit id."""
FILE, EXECUTABLE, LINK, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o160000


@dataclass
class Clone:
    """Somebody's working copy, used with plain git."""

    folder: Path
    world: dict[str, str]

    @classmethod
    def make(
        cls, folder: Path, url: str, world: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> Clone:
        """Clone `url` with every branch."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = cls(folder, {**os.environ, **world})
        options = [word for key, value in (settings or {}).items() for word in ("-c", f"{key}={value}")]
        done = _run(["git", "clone", "-q", *options, url, str(folder)], folder.parent, made.world)
        assert done.code == 0, done.text
        made.git("config", "gc.auto", "0")
        return made

    def ask(self, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> Answer:
        """Run git in the copy, whatever comes of it."""
        return _run(["git", *arguments], self.folder, self.world | dict(env or {}), data)

    def git(self, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """Run git in the copy; what it prints. It must succeed."""
        done = self.ask(*arguments, data=data, env=env)
        assert done.code == 0, f"git {' '.join(arguments)}: {done.text}"
        return done.out.decode("utf-8", "surrogateescape").strip()

    def push(self, *refs: str) -> Answer:
        """`git push origin REFS…`: the branch that is checked out, where none is given."""
        return self.ask("push", "origin", *(refs or ["HEAD"]))

    def orphan(self, epoch: str) -> None:
        """Begin an epoch as docs/push.md shows: a branch with no parent, and no files."""
        self.git("switch", "-q", "--orphan", epoch)

    def commit(self, files: Mapping[str, bytes | str | None], message: str = "a change") -> str:
        """Write files (None removes one), and commit them; the commit's id."""
        for path, data in files.items():
            target = self.folder / path
            if data is None:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data.encode() if isinstance(data, str) else data)
        self.git("add", "-A", ".")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    # -- what git's own commands would not make ----------------------------------------------

    def blob(self, data: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", data=data)

    def tree(self, entries: Mapping[bytes | str, Entry | bytes | str]) -> str:
        """A tree of any names at all, by path; a plain value is an ordinary file."""
        below: dict[bytes, dict[bytes | str, Entry | bytes | str]] = {}
        rows: list[tuple[bytes, int, bytes]] = []
        for path, value in entries.items():
            name, slash, rest = (path.encode() if isinstance(path, str) else path).partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = value
                continue
            mode, data = (FILE, value) if isinstance(value, bytes | str) else value
            data = data.encode() if isinstance(data, str) else data
            oid = data if mode == SUBMODULE else bytes.fromhex(self.blob(data))
            rows.append((name, mode, oid))
        rows += [(name, 0o40000, bytes.fromhex(self.tree(inner))) for name, inner in below.items()]
        rows.sort(key=lambda row: row[0] + (b"/" if row[1] == 0o40000 else b""))
        raw = b"".join(b"%o %s\0%s" % row for row in ((mode, name, oid) for name, mode, oid in rows))
        return self.git("hash-object", "-t", "tree", "-w", "--literally", "--stdin", data=raw)

    def commit_tree(self, tree: str, *parents: str, message: str = "a change") -> str:
        """A commit of a tree; no branch moves."""
        options = [word for parent in parents for word in ("-p", parent)]
        return self.git("commit-tree", tree, *options, "-m", message)


@pytest.fixture
def make_forge(tmp_path: Path) -> Callable[..., Forge]:
    """`make_forge(layout)`: a new forge in `tmp_path/LAYOUT`, without repositories."""

    def make(layout: Layout, name: str | None = None) -> Forge:
        return Forge(tmp_path / (name or layout), layout)

    return make


@pytest.fixture(params=["v15", "v16"])
def forge(request: pytest.FixtureRequest, make_forge: Callable[..., Forge]) -> Forge:
    """A forge without repositories, once in each layout."""
    made: Forge = make_forge(request.param)
    return made
