"""`gitmem hooks install`, `uninstall` and `status`: beside what is there, and back to the byte."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gitmem.errors import GitmemError
from gitmem.receive.install import install, status, uninstall
from tests.conftest import Done
from tests.forge import Clone, Forge, write_script
from tests.pushing import seed, taken

NEW = "raw/20260601-080000.txt"
LOG = '#!/bin/sh\n(echo "$0"; cat) >> "%s/log"\nexit %d\n'
Repo = tuple[Forge, Path]


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything below a folder but objects: mode, and bytes or the target of a link."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(place, name)
            kept = str(path.relative_to(folder))
            mode = path.lstat().st_mode
            if kept.startswith(("objects", "refs")):
                continue
            if stat.S_ISLNK(mode):
                found[kept] = (mode, os.readlink(path).encode())
            else:
                found[kept] = (mode, b"" if path.is_dir() else path.read_bytes())
    return found


# -- what may stand in a repository before ----------------------------------------------------


def nothing(hooks: Path) -> None:
    shutil.rmtree(hooks)


def empty_folder(hooks: Path) -> None:
    shutil.rmtree(hooks)
    hooks.mkdir(mode=0o700)


def samples(hooks: Path) -> None:
    """What git's template has."""


def script(hooks: Path) -> None:
    write_script(hooks / "pre-receive", LOG % (hooks.parent, 0)).chmod(0o700)
    write_script(hooks / "post-receive", LOG % (hooks.parent, 0)).chmod(0o555)


def link(hooks: Path) -> None:
    write_script(hooks.parent / "elsewhere/check", LOG % (hooks.parent, 0))
    (hooks / "pre-receive").symlink_to("../elsewhere/check")
    (hooks / "post-receive").symlink_to(hooks.parent / "elsewhere/check")


def dead_link(hooks: Path) -> None:
    (hooks / "pre-receive").symlink_to("/no/such/hook")


def not_executable(hooks: Path) -> None:
    write_script(hooks / "pre-receive", LOG % (hooks.parent, 1)).chmod(0o644)


def program(hooks: Path) -> None:
    shutil.copy("/bin/true", hooks / "pre-receive")


def own_folder(hooks: Path) -> None:
    """Somebody's delegate, and a folder of hooks that nobody runs."""
    write_script(hooks / "pre-receive", '#!/bin/sh\nfor i in hooks/pre-receive.d/*; do "$i" || exit; done\n')
    write_script(hooks / "pre-receive.d/05-own", "#!/bin/sh\nexit 0\n")
    write_script(hooks / "post-receive.d/05-own", LOG % (hooks.parent, 0))


def names_with_spaces(hooks: Path) -> None:
    write_script(hooks / 'pre-receive.d/a hook\'s "name"', LOG % (hooks.parent, 0))
    (hooks / "pre-receive.d/雨").write_text("note")


STATES = [
    nothing,
    empty_folder,
    samples,
    script,
    link,
    dead_link,
    not_executable,
    program,
    own_folder,
    names_with_spaces,
]


@pytest.fixture
def plain(make_forge: Callable[..., Forge]) -> Repo:
    forge = make_forge("plain")
    folder = forge.create()
    seed(folder, forge)
    return forge, folder


def check_pushes(forge: Forge, name: str) -> None:
    """Our hooks run: good is taken, bad is not."""
    work = forge.clone(name, via="file")
    work.git("switch", "-q", "D1")
    number = len(work.git("rev-list", "HEAD").split())
    work.commit({f"raw/20260601-0800{number:02}.txt": "好"})
    taken(work.push())
    work.commit({"x": "坏"})
    assert "file.path" in work.push().text


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_uninstall_brings_back_every_byte(plain: Repo, state: Callable[[Path], None]) -> None:
    forge, folder = plain
    state(folder / "hooks")
    before = snapshot(folder)
    assert install(str(folder))
    once = snapshot(folder)
    install(str(folder))
    assert snapshot(folder) == once
    assert once["config"] == before["config"]
    check_pushes(forge, "a")
    install(str(folder))
    uninstall(str(folder))
    ours = {name for name in snapshot(folder) if name.startswith("gitmem.")} | {"log"}
    after = {name: value for name, value in snapshot(folder).items() if name not in ours}
    assert after == {name: value for name, value in before.items() if name not in ours}
    uninstall(str(folder))
    assert {name: value for name, value in snapshot(folder).items() if name not in ours} == after
    install(str(folder))
    check_pushes(forge, "b")


@pytest.mark.parametrize("state", [script, link, names_with_spaces], ids=lambda state: state.__name__)
def test_hooks_that_were_there_still_run(plain: Repo, state: Callable[[Path], None]) -> None:
    forge, folder = plain
    state(folder / "hooks")
    install(str(folder))
    work = forge.clone("a", via="file")
    work.git("switch", "-q", "D1")
    old, new = work.git("rev-parse", "HEAD"), work.commit({NEW: "好"})
    taken(work.push())
    heard = (folder / "log").read_text()
    assert f"{old} {new} refs/heads/D1\n" in heard


def test_a_hook_that_was_there_still_refuses(plain: Repo) -> None:
    forge, folder = plain
    write_script(folder / "hooks/pre-receive", "#!/bin/sh\necho mine says no\nexit 9\n")
    install(str(folder))
    work = forge.clone("a", via="file")
    work.git("switch", "-q", "D1")
    work.commit({NEW: "好"})
    refused = work.push()
    assert refused.code
    assert "mine says no" in refused.remote
    work.commit({"x": "坏"})
    refused = work.push()
    assert "mine says no" in refused.remote
    assert "file.path" in refused.text


def test_a_hook_that_git_ignored_stays_ignored(plain: Repo) -> None:
    forge, folder = plain
    not_executable(folder / "hooks")
    install(str(folder))
    check_pushes(forge, "a")
    assert not (folder / "log").exists()


@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.parametrize("layout", ["v15", "v16"])
def test_layouts_of_a_forge(make_forge: Callable[..., Forge], layout: str, stale: bool) -> None:
    forge = make_forge(layout)
    folder = forge.create(stale=stale)
    seed(folder, forge)
    before = snapshot(folder)
    install(str(folder))
    check_pushes(forge, "a")
    assert snapshot(folder)["config"] == before["config"]
    if layout == "v15":
        # The forge writes its hooks anew now and then; ours stay.
        assert snapshot(folder)["hooks/pre-receive"] == before["hooks/pre-receive"]
        forge.regenerate_hooks(folder)
        check_pushes(forge, "b")
    uninstall(str(folder))
    kept = {name: value for name, value in snapshot(folder).items() if name.startswith("hooks")}
    assert kept == {name: value for name, value in before.items() if name.startswith("hooks")}


def test_regenerated_over_our_delegate(make_forge: Callable[..., Forge]) -> None:
    """A repository that had no hooks when we came, and got the forge's later."""
    forge = make_forge("v15")
    folder = forge.create()
    shutil.rmtree(folder / "hooks")
    seed(folder, forge)
    install(str(folder))
    forge.regenerate_hooks(folder)
    check_pushes(forge, "a")
    uninstall(str(folder))
    assert "10-gitmem" not in "".join(snapshot(folder))
    work = forge.clone("b", via="ssh")
    work.commit({NEW: "好"})
    taken(work.push("HEAD:refs/heads/anything"))


def test_a_file_of_our_name_that_is_not_ours(plain: Repo) -> None:
    _, folder = plain
    write_script(folder / "hooks/pre-receive.d/10-gitmem", "#!/bin/sh\necho somebody else's\n")
    before = snapshot(folder / "hooks")
    try:
        install(str(folder))
    except GitmemError:
        pass
    else:
        uninstall(str(folder))
    assert snapshot(folder / "hooks") == before


# -- what is refused --------------------------------------------------------------------------


def test_never_hooks_path(plain: Repo, cli: Callable[..., Done]) -> None:
    forge, folder = plain
    install(str(folder))
    assert "hookspath" not in (folder / "config").read_text().lower()
    forge.git(folder, "config", "core.hooksPath", "/somewhere")
    before = snapshot(folder)
    refused = cli("hooks", "install", folder, check=4)
    assert "core.hooksPath" in refused.err
    assert "config --unset core.hooksPath" in refused.err
    assert snapshot(folder) == before
    assert "core.hooksPath" in cli("hooks", "status", folder, check=5).text


def test_places_that_are_no_bare_repository(plain: Repo, tmp_path: Path, cli: Callable[..., Done]) -> None:
    forge, folder = plain
    work = forge.clone("a", via="file")
    for verb in ("install", "uninstall", "status"):
        for place in (work.folder, tmp_path, tmp_path / "nowhere"):
            done = cli("hooks", verb, place, check=2)
            assert str(place) in done.err
            assert "Traceback" not in done.err
    shared = tmp_path / "shared"
    (folder / "hooks").rename(shared)
    (folder / "hooks").symlink_to(shared)
    before = snapshot(shared)
    cli("hooks", "install", folder, check=4)
    assert snapshot(shared) == before


# -- the command line -------------------------------------------------------------------------


def test_status_tells_how_the_hooks_stand(plain: Repo, cli: Callable[..., Done]) -> None:
    forge, folder = plain
    other = forge.create("YM001", "ZY002")
    assert cli("hooks", "status", folder, check=5).text.count("missing") == 2
    done = cli("hooks", "install", folder, other, check=0)
    assert str(folder) in done.text
    assert str(other) in done.text
    answer = cli("hooks", "status", folder, other, "--json", check=0).json()
    assert [entry["repository"] for entry in answer["entries"]] == [str(folder), str(other)]
    assert {hook["state"] for entry in answer["entries"] for hook in entry["hooks"]} == {"ready"}
    hook = folder / "hooks/pre-receive.d/10-gitmem"
    hook.chmod(0o644)
    assert "broken" in cli("hooks", "status", folder, check=5).text
    hook.write_text(re.sub(r"^python=.*$", "python=/no/such/python", hook.read_text(), flags=re.MULTILINE))
    hook.chmod(0o755)
    states = {found.name: found.state for found in status(str(folder))}
    assert states == {"pre-receive": "broken", "post-receive": "ready"}
    cli("hooks", "install", folder, check=0)
    assert {found.state for found in status(str(folder))} == {"ready"}
    assert json.loads(cli("hooks", "uninstall", folder, "--json", check=0).out)["entries"]
    assert cli("hooks", "status", folder, check=5).text.count("missing") == 2
    assert "nothing to do" in cli("hooks", "uninstall", folder, check=0).text


def test_a_delegate_that_went_missing(plain: Repo) -> None:
    """Without a delegate plain git runs nothing of ours: status must not call that ready."""
    _, folder = plain
    install(str(folder))
    (folder / "hooks/pre-receive").write_text("#!/bin/sh\nexit 0\n")
    assert {found.name: found.state for found in status(str(folder))}["pre-receive"] != "ready"


def test_names_of_repositories_may_hold_anything(tmp_path: Path, make_forge: Callable[..., Forge]) -> None:
    forge = make_forge("plain")
    folder = forge.create()
    seed(folder, forge)
    odd = tmp_path / "a b'c\"雨$(x)\n.git"
    folder.rename(odd)
    install(str(odd))
    work = Clone.make(tmp_path / "work", str(odd), {})
    work.git("switch", "-q", "D1")
    work.commit({"x": "坏"})
    assert "file.path" in work.push().text
    work.git("reset", "-q", "--hard", "origin/D1")
    work.commit({NEW: "好"})
    taken(work.push())
