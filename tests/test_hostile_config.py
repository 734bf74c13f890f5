"""The user's own git does not matter: signing, hooks, line endings, defaults, a GIT_DIR that misleads."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PERSONA, Done
from tests.hostile import HOSTILE

Cli = Callable[..., Done]
AT = ("--at", "2026-05-31T11:54:47")
FIRST = f"{PERSONA}/D1/raw/20260531-115447.txt"
TEXT = "第一句话在这里。\r\n第二句话在那里。\r\n第三句话在远处。\r\n".encode()
FAILING = "#!/bin/sh\necho a hook of the user ran >&2\ntouch {user}/hook-ran\nexit 1\n"


@pytest.fixture
def hostile(hermetic: Path) -> dict[str, str | None]:
    """A user whose configuration breaks every careless git command."""
    user = hermetic
    for folder in ("hooks", "template/hooks"):
        (user / folder).mkdir(parents=True)
        for name in ("pre-commit", "commit-msg", "pre-push", "pre-receive", "update", "post-receive",
                     "reference-transaction", "pre-auto-gc", "post-update", "post-rewrite"):  # fmt: skip
            hook = user / folder / name
            hook.write_text(FAILING.format(user=user), "utf-8")
            hook.chmod(0o755)
    (user / "template/description").write_text("from the user's template", "utf-8")
    (user / "attributes").write_text("* text eol=crlf filter=none\n*.txt export-ignore ident\n", "utf-8")
    (user / "ignore").write_text("*.txt\nraw/\nmeta/\n", "utf-8")
    config = user / ".gitconfig"
    config.write_text(HOSTILE.format(user=user), "utf-8")
    for folder in ("config/git", ".config/git"):
        (user / folder).mkdir(parents=True)
        (user / folder / "config").write_text(HOSTILE.format(user=user), "utf-8")
    gone = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    return dict.fromkeys(gone) | {"GIT_CONFIG_GLOBAL": str(config), "EMAIL": None}


def broken(world: dict[str, str | None]) -> dict[str, str | None]:
    """The same user, whose configuration is no configuration at all."""
    user = Path(str(world["GIT_CONFIG_GLOBAL"])).parent
    for path in (user / ".gitconfig", user / "config/git/config", user / ".config/git/config"):
        path.write_text('[core\n  this is = = not git ] config "\n', "utf-8")
    return world


def astray(world: dict[str, str | None]) -> dict[str, str | None]:
    """Variables that lead git elsewhere, as inside a hook or a tool that set them."""
    user = Path(str(world["GIT_CONFIG_GLOBAL"])).parent
    (user / "empty").mkdir()
    return world | {
        "GIT_DIR": str(user / "empty"), "GIT_WORK_TREE": "/nowhere", "GIT_INDEX_FILE": "/nowhere/index",
        "GIT_OBJECT_DIRECTORY": str(user / "empty"), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(user / "empty"),
        "GIT_COMMON_DIR": str(user / "empty"), "GIT_NAMESPACE": "elsewhere", "GIT_CEILING_DIRECTORIES": "/",
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.bare", "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_PARAMETERS": "'core.bare'='false'", "GIT_TEMPLATE_DIR": str(user / "template"),
        "GIT_QUARANTINE_PATH": str(user / "empty"), "GIT_TRACE": "1", "GIT_LITERAL_PATHSPECS": "1",
        "GIT_REPLACE_REF_BASE": "refs/heads/", "GIT_SHALLOW_FILE": "/nowhere", "GIT_DEFAULT_HASH": "sha256",
        "GIT_AUTHOR_DATE": "nonsense", "GIT_COMMITTER_DATE": "nonsense", "LC_ALL": "zh_CN.GBK", "LANG": "C",
    }  # fmt: skip


def flow(cli: Cli, place: Path, source: Path) -> list[str]:
    """Everything gitmem does, in a home of its own; what it answered that does not hang on the clock."""
    said: list[str] = []

    def run(*words: str | Path, data: bytes = b"", code: int = 0) -> Done:
        done = cli("--home", place / "home", *words, data=data, check=code)
        assert "Traceback" not in done.err
        said.append(f"{words[0]} {done.code} {done.text if words[0] in ('trace', 'remember') else ''}")
        return done

    place.mkdir()
    run("init")
    run("persona", "add", PERSONA, "--timezone", "Asia/Shanghai", "--human", "冰朔", "--alias", "铸渊")
    for name in ("", "b", "c"):
        label = ("--label", name) if name else ()
        run("write", PERSONA, *AT, "--epoch", "D1", "--tag", "雨", *label, data=TEXT + name.encode())
    run("write", PERSONA, *AT, "--epoch", "D2", data=b"another epoch")
    run("record", PERSONA, "--id", "mem_hostile1", *AT, data='{"题": 1}'.encode())
    second, third = FIRST.replace(".txt", "-b-0002.txt"), FIRST.replace(".txt", "-c-0003.txt")
    run("archive", FIRST)
    assert run("trace", FIRST).out == TEXT
    assert run("remember", "--restore", FIRST).out == TEXT
    run("wither", second, "--forget-original")
    run("trace", second)
    run("import", source, "--persona", PERSONA)
    run("epoch", PERSONA, "D9")
    run("maintain")
    run("release", "--yes", third)
    run("trace", third, code=1)
    run("history", FIRST)
    run("timeline", PERSONA)
    run("export", place / "out")
    run("doctor", "--loop")
    cli("init", place / "copy", "--from", place / "out", check=0)
    assert cli("--home", place / "copy", "trace", FIRST, check=0).out == TEXT
    cli("demo", place / "demo", check=0)
    return said


def facts(home: Path) -> list[str]:
    """Blobs and names of every epoch, and how the repository is set up, read by an undisturbed git."""
    clean = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}

    def git(*words: str) -> str:
        command = ["git", "--git-dir", str(home / "ym001/zy001.git"), *words]
        ran = subprocess.run(command, capture_output=True, env=clean, check=True)
        return ran.stdout.decode()

    assert git("fsck", "--full", "--strict", "--no-progress", "--no-dangling") == ""
    found = [f"HEAD {git('symbolic-ref', 'HEAD')}"]
    for branch in git("for-each-ref", "--format=%(refname:short)").split():
        files = git("ls-tree", "-r", branch).splitlines()
        found += [f"{branch} {line}" for line in files if "meta/" not in line]
        written = git("log", "--format=%an|%ae|%ad|%s", branch, "--").splitlines()
        found += [f"{branch} {line}" for line in written if "write raw/" in line]
        assert "gpgsig" not in git("cat-file", "commit", branch)
        assert "encoding" not in git("cat-file", "commit", branch)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "turns.jsonl"
    file.write_text(
        '{"id": "1", "ts": "2026-05-01T10:00:00", "role": "user", "text": "从前\\r\\n"}\n', "utf-8"
    )
    return file


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variant", ["hostile", "broken", "astray"])
def test_nothing_changes(
    cli: Cli, hostile: dict[str, str | None], source: Path, tmp_path: Path, variant: str, hermetic: Path
) -> None:
    calm = flow(cli, tmp_path / "calm", source)
    world = {"hostile": lambda w: w, "broken": broken, "astray": astray}[variant](hostile)

    def run(*words: Any, **more: Any) -> Done:
        return cli(*words, env=world, **more)

    assert flow(run, tmp_path / "wild", source) == calm
    assert facts(tmp_path / "wild" / "home") == facts(tmp_path / "calm" / "home")
    assert not (hermetic / "hook-ran").exists(), "a hook of the user ran"
    repository = tmp_path / "wild/home/ym001/zy001.git"
    assert {hook.name for hook in (repository / "hooks").iterdir()} <= {
        "pre-receive", "post-receive", "pre-receive.d", "post-receive.d", "README.sample"
    }  # fmt: skip
    assert "gitmem" in (repository / "hooks" / "pre-receive").read_text("utf-8")
    description = repository / "description"
    assert not description.exists() or "template" not in description.read_text("utf-8")
    assert variant != "astray" or list((hermetic / "empty").iterdir()) == []
    outside = [path for path in hermetic.rglob("*") if path.suffix in (".db", ".lock")]
    assert outside == []


@pytest.mark.timeout(300)
def test_push_by_such_a_user(cli: Cli, hostile: dict[str, str | None], tmp_path: Path) -> None:
    """The user's own clone obeys the user; what gets in is what was pushed, and gitmem reads it as it is."""
    home = tmp_path / "home"
    run = lambda *words, **more: cli("--home", home, *words, env=hostile, **more)  # noqa: E731
    run("init", check=0)
    run("persona", "add", PERSONA, "--timezone", "Asia/Shanghai", check=0)
    run("write", PERSONA, *AT, "--epoch", "D1", data=TEXT, check=0)
    clone = tmp_path / "clone"
    config = Path(str(hostile["GIT_CONFIG_GLOBAL"]))
    # git lets a user's global hooks replace the receiving repository's own in a push to a local path.
    config.write_text(re.sub(r"denyAll.*|hideRefs.*|hooksPath.*", "", config.read_text("utf-8")), "utf-8")
    world = {key: value for key, value in (os.environ | hostile).items() if value is not None}

    def git(*words: str) -> None:
        # The person overrides only what makes a commit impossible for themselves.
        pairs = ["commit.gpgsign=false", "core.hooksPath=/dev/null", "user.name=N", "user.email=n@x.invalid",
                 "safe.directory=*", "core.safecrlf=false", "core.fsmonitor=false",
                 "extensions.objectFormat=sha1"]  # fmt: skip
        fit = [word for pair in pairs for word in ("-c", pair)]
        ran = subprocess.run(["git", *fit, *words], capture_output=True, env=world, check=False)
        assert ran.returncode == 0, ran.stderr.decode()

    git("clone", "-q", "--template=", "--branch", "D1", str(home / "ym001/zy001.git"), str(clone))
    (clone / "raw/20260601-000000.txt").write_bytes("推来的\n".encode())
    git("-C", str(clone), "add", "-f", "raw/20260601-000000.txt")
    git("-C", str(clone), "commit", "-q", "-m", "by hand")
    git("-C", str(clone), "push", "-q", "origin", "D1")
    pushed = FIRST.replace("20260531-115447", "20260601-000000")
    assert run("trace", pushed, check=0).out == "推来的\n".encode()
    assert run("trace", FIRST, check=0).out == TEXT
    run("archive", pushed, check=0)
    run("release", "--yes", pushed, FIRST, check=0)
    assert run("doctor", check=0).text.endswith("all is well.\n")
