"""The hooks on a host: beside the forge's own, with little around them, and when something is missing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gitmem import Memory
from gitmem.receive.install import install
from tests.forge import Clone, Forge, write_script
from tests.pushing import EVERYWHERE, LEAF, RAIN, SIDECAR, TOMBSTONE, Site, rules, said, site_of, taken

NEW = "raw/20260601-080000.txt"
PERSONA = "YM001/ZY001"
TOOLS = "sh bash env cat git sed grep sort dirname basename expr"


def objects(site: Site) -> bytes:
    return site.git("cat-file", "--batch-check", "--batch-all-objects")


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_every_layout_and_transport(kind: str, make_forge: Callable[..., Forge]) -> None:
    with site_of(kind, make_forge) as site:
        work = site.clone()
        work.commit({NEW: "好"})
        taken(work.push())
        work.commit({"raw/坏.txt": "坏"})
        with site.unchanged():
            assert rules(work.push()) == {"file.path"}


# -- beside the forge's own hook --------------------------------------------------------------


def test_forge_refuses_what_we_allow(site: Site) -> None:
    """Ours ran before it (v15) or after it (v16); either way nothing of the push is left."""
    site.forge.refuse()
    work = site.clone()
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    refs, known = site.refs(), objects(site)
    refused = work.push()
    assert refused.code
    assert "Forge: pre-receive says no" in refused.remote
    assert (site.refs(), objects(site)) == (refs, known)
    # What was promised for that push is not carried out.
    with site.home() as home:
        memory = home.persona(PERSONA)
        assert memory.trace(f"{PERSONA}/D1/{LEAF}").content == RAIN
        memory.write("又一句", epoch="D1")
    site.forge.refuse(yes=False)
    work.git("pull", "-q", "--rebase")
    taken(work.push())
    with site.home() as home:
        assert home.persona(PERSONA).trace(f"{PERSONA}/D1/{LEAF}").status == "released"


def test_forge_allows_what_we_refuse(site: Site) -> None:
    work = site.clone()
    work.commit({"x": "y"})
    with site.unchanged():
        assert rules(work.push()) == {"file.path"}


def test_both_refuse_and_both_are_heard(site: Site) -> None:
    site.forge.refuse()
    work = site.clone()
    work.commit({"x": "y"})
    with site.unchanged():
        refused = work.push()
        assert "Forge: pre-receive says no" in refused.remote
        assert rules(refused) == {"file.path"}


def test_another_hook_refuses_after_ours(site: Site) -> None:
    write_script(site.folder / "hooks/pre-receive.d/zz-late", "#!/bin/sh\necho late says no\nexit 3\n")
    work = site.clone()
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    refs, known = site.refs(), objects(site)
    refused = work.push()
    assert refused.code
    assert "late says no" in refused.remote
    assert (site.refs(), objects(site)) == (refs, known)
    with site.home() as home:
        assert home.persona(PERSONA).trace(f"{PERSONA}/D1/{LEAF}").content == RAIN


def test_update_hook_refuses_one_branch_after_ours(site: Site) -> None:
    if site.forge.layout == "v16" and site.via == "file":
        pytest.skip("the same as over HTTP")
    site.forge.refuse("update")
    work = site.clone()
    work.commit({LEAF: None, SIDECAR: TOMBSTONE})
    refs = site.refs()
    assert "hook declined" in work.push().text
    assert site.refs() == refs
    with site.home() as home:
        memory = home.persona(PERSONA)
        assert memory.trace(f"{PERSONA}/D1/{LEAF}").content == RAIN
        memory.write("又一句", epoch="D1")
    site.git("fsck", "--strict")


def test_other_hooks_hear_the_same_lines(site: Site) -> None:
    for name in ("pre-receive", "post-receive"):
        write_script(site.folder / f"hooks/{name}.d/50-log", f'#!/bin/sh\ncat >> "{site.forge.top}/heard"\n')
    work = site.clone()
    old = work.git("rev-parse", "HEAD")
    new = work.commit({NEW: "好"})
    taken(work.push())
    assert (site.forge.top / "heard").read_text() == f"{old} {new} refs/heads/D1\n" * 2


# -- with little around -----------------------------------------------------------------------


def lonely_path(site: Site, *, without: str = "") -> str:
    """A PATH with hardly more than git and a shell: no Python."""
    folder = site.forge.top / "bin"
    folder.mkdir()
    for name in TOOLS.split():
        for place in ("/usr/bin", "/bin"):
            if Path(place, name).exists() and name != without and not (folder / name).exists():
                (folder / name).symlink_to(Path(place, name))
    return str(folder)


@pytest.mark.parametrize(
    "extra",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": None, "LANG": None},
        {"LC_ALL": "zh_CN.GBK"},
        {"HOME": None},
        {"HOME": "/no/such/home"},
        {"TMPDIR": "/no/such/folder"},
    ],
    ids=["C", "no locale", "GBK", "no HOME", "bad HOME", "bad TMPDIR"],
)
def test_little_environment(site: Site, extra: dict[str, str | None]) -> None:
    # Without HOME git would not find the forge's own settings.
    site.forge.extra = extra | {"GIT_CONFIG_GLOBAL": str(site.forge.home / ".gitconfig")}
    site.forge.path = lonely_path(site)
    work = site.clone()
    work.commit({LEAF: None, SIDECAR: TOMBSTONE, NEW: "好"})
    done = work.push()
    taken(done)
    assert "git pull --rebase" in done.text
    work.git("pull", "-q", "--rebase")
    work.commit({"raw/雨夜🐈.txt": "坏"})
    refused = work.push()
    assert any(line.startswith("D1: raw/雨夜🐈.txt: file.path: ") for line in said(refused)), refused.text


def change_python(site: Site, python: str) -> None:
    """Let the hooks name another Python."""
    for name in ("pre-receive", "post-receive"):
        path = site.folder / f"hooks/{name}.d/10-gitmem"
        path.write_text(re.sub(r"^python=.*$", f"python={python}", path.read_text(), flags=re.MULTILINE))


def push_is_refused_clearly(site: Site, work: Clone, python: str) -> None:
    with site.unchanged():
        refused = work.push()
        assert refused.code
    mine = [line for line in refused.remote if line.startswith("gitmem: ")]
    assert mine[0].startswith("gitmem: push refused: "), refused.text
    assert python in "".join(mine)
    assert any("gitmem hooks" in line for line in mine)
    assert "Traceback" not in refused.text


def test_interpreter_is_gone(site: Site) -> None:
    change_python(site, "/no/such/python3")
    work = site.clone()
    work.commit({NEW: "好"})
    push_is_refused_clearly(site, work, "/no/such/python3")
    site.forge.path = lonely_path(site)
    change_python(site, "python3")
    push_is_refused_clearly(site, work, "python3")


def test_python_without_gitmem(site: Site) -> None:
    bare = write_script(site.forge.top / "python3", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    change_python(site, str(bare))
    work = site.clone()
    work.commit({NEW: "好"})
    push_is_refused_clearly(site, work, str(bare))


def test_gitmem_fails(site: Site) -> None:
    """A fault of the repository refuses the push in words."""
    (site.folder / "gitmem.lock").unlink(missing_ok=True)
    (site.folder / "gitmem.lock").mkdir()
    work = site.clone()
    work.commit({NEW: "好"})
    refused = work.push()
    assert refused.code
    assert any("gitmem: push refused: " in line and "gitmem.lock" in line for line in refused.remote)
    assert "Traceback" not in refused.text


# -- the repository of a home -----------------------------------------------------------------


def test_a_new_memory_has_the_hooks_at_once(memory: Memory, tmp_path: Path) -> None:
    memory.write("一", epoch="D1")
    folder = memory.repository.folder
    work = Clone.make(tmp_path / "work", folder, {})
    work.git("switch", "-q", "D1")
    work.commit({"x": "y"})
    assert rules(work.push()) == {"file.path"}
    work.git("reset", "-q", "--hard", "origin/D1")
    work.commit({NEW: "由 git 写的。"})
    taken(work.push())
    assert memory.trace(f"{PERSONA}/D1/{NEW}").content == "由 git 写的。"
    path = memory.write("要忘的", epoch="D1").trace_path
    work.git("pull", "-q", "--rebase")
    name = path.split("/", 3)[3]
    work.commit({name: None, f"meta/{name[:-4]}.yaml": TOMBSTONE})
    taken(work.push())
    assert memory.trace(path).status == "released"


def test_a_wiki_takes_pages_of_any_name(site: Site) -> None:
    """The wiki of a persona has rules of its own."""
    wiki = site.forge.create("YM001", "ZY001.wiki", stale=False)
    install(str(wiki))
    work = site.forge.clone("w", via=site.via, user="bingshuo", repo="ZY001.wiki", server=site.server)
    work.commit({"雨夜.md": "# 雨夜\n\n一页。\n", "Home.md": "# Home\n"})
    taken(work.push("HEAD:refs/heads/main"))
    work.commit({".forgejo/workflows/x.yml": "on: push\n", "x.md": b"\xff"})
    assert rules(work.push("HEAD:refs/heads/main")) == {"file.workflow", "file.utf8"}
