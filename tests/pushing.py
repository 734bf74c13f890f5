"""What tests of pushes share: a host with a persona's repository, our hooks, and working copies."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitmem import Home
from gitmem.policy.rules import RULES
from gitmem.receive.install import install
from tests.forge import OWNER, REPO, Answer, Clone, Forge, Layout, Transport
from tests.forge_http import Server

SITES = (
    "v15-http",
    "v16-file",
    pytest.param("v15-file", marks=pytest.mark.slow),
    pytest.param("v16-http", marks=pytest.mark.slow),
)
"""Both layouts and both transports; in the slow tests each with each."""
EVERYWHERE = (*SITES, "v15-ssh", "plain-http", "plain-file")
RAIN = "雨下了一整夜。屋檐在滴水。猫睡着了。\n"
LEAF = "raw/20260531-115447.txt"
SIDECAR = "meta/raw/20260531-115447.yaml"
TOMBSTONE = "state: released\nreleased_at: 2026-06-03T04:00:00+08:00\n"
MANIFEST = """format: 1
purge: 1
root: YM001
persona: ZY001
timezone: Asia/Shanghai
human: "冰朔"
"""
_SETTINGS = "operators: [admin]\n"
_SEED = """\
commit refs/heads/main
committer gitmem <gitmem@localhost.invalid> 1780200000 +0800
data 20
persona YM001/ZY001
M 100644 inline gitmem.yaml
data {size}
{manifest}
commit refs/heads/D1
committer gitmem <gitmem@localhost.invalid> 1780200000 +0800
data 21
epoch YM001/ZY001/D1

commit refs/heads/D1
committer Test <test@example.invalid> 1780200001 +0800
data 34
write raw/20260531-115447.txt, one
M 100644 inline raw/20260531-115447.txt
data {rain}
{text}
M 100644 inline raw/20260531-120000.txt
data 3
二
"""


@dataclass
class Site:
    """A host, the persona's repository on it, and how its users reach it."""

    forge: Forge
    folder: Path
    via: Transport
    server: Server | None

    def clone(self, name: str = "a", user: str = "zhuyuan", *, epoch: str | None = "D1") -> Clone:
        """A working copy that has `epoch` checked out."""
        work = self.forge.clone(name, via=self.via, user=user, server=self.server)
        if epoch is not None:
            work.git("switch", "-q", epoch)
        return work

    def git(self, *arguments: str, check: bool = True) -> bytes:
        """git in the repository on the host."""
        return self.forge.git(self.folder, *arguments, check=check)

    def refs(self) -> bytes:
        return self.git("for-each-ref")

    def files(self) -> set[str]:
        """Every file of the repository that git holds objects and refs in, and our own notes."""
        found = {
            os.path.relpath(os.path.join(folder, name), self.folder)
            for folder, _, names in os.walk(self.folder)
            for name in names
        }
        return {path for path in found if path not in _MAY_APPEAR}

    def home(self) -> Home:
        """The folder of repositories as a home."""
        return Home(self.forge.root)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing that a push brought is left in the block: no ref, no object, no note of ours."""
        refs, files = self.refs(), self.files()
        yield
        assert self.refs() == refs
        assert self.files() == files
        assert not list((self.folder / "objects").glob("tmp_objdir*"))


_MAY_APPEAR = {"gitmem.lock", "info/refs", "objects/info/packs"}


def seed(folder: Path, forge: Forge) -> None:
    """Put the persona's `main` and an epoch D1 with two leaves into an empty repository."""
    words = {"size": len(MANIFEST.encode()), "manifest": MANIFEST, "rain": len(RAIN.encode()), "text": RAIN}
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=folder,
        env=forge.environment(),
        input=_SEED.format(**words).encode(),
        check=True,
        timeout=60,
    )


@contextlib.contextmanager
def site_of(kind: str, make_forge: Callable[..., Forge]) -> Iterator[Site]:
    """A host of a kind such as "v16-http", seeded, with our hooks."""
    layout, via = kind.split("-")
    forge: Forge = make_forge(layout, kind)
    forge.root.chmod(0o700)
    (forge.root / "settings.yaml").write_text(_SETTINGS, "utf-8")
    folder = forge.create(OWNER, REPO)
    seed(folder, forge)
    install(str(folder))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(forge.http()) if via == "http" else None
        yield Site(forge, folder, via, server)  # type: ignore[arg-type]


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, make_forge: Callable[..., Forge]) -> Iterator[Site]:
    """A host, in both hook layouts, over HTTP and to a path."""
    with site_of(request.param, make_forge) as made:
        yield made


@pytest.fixture
def one_site(make_forge: Callable[..., Forge]) -> Iterator[Site]:
    """One host, for what neither layout nor transport has to do with."""
    with site_of("v16-file", make_forge) as made:
        yield made


def layout_of(site: Site) -> Layout:
    return site.forge.layout


def said(answer: Answer) -> list[str]:
    """The violations that a refused push was told, without our name."""
    assert answer.code, "the push was taken"
    assert "pre-receive hook declined" in answer.text, answer.text
    lines = [line.removeprefix("gitmem: ") for line in answer.remote if line.startswith("gitmem: ")]
    assert lines[0].startswith("push refused: "), answer.text
    return lines[1:]


def rules(answer: Answer) -> set[str]:
    """The rules that a refused push broke."""
    return {next(part for part in line.split(": ") if part in RULES) for line in said(answer)}


def taken(answer: Answer) -> None:
    """The push must have been taken."""
    assert answer.code == 0, answer.text


def holds(folder: Path, text: bytes) -> list[str]:
    """Files below a folder that hold a text, as it is or in one of git's compressed streams."""
    found = [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]
    command = ["git", "-C", str(folder), "cat-file", "--batch-all-objects", "--batch"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return found + (["git objects"] if text in done.stdout else [])
