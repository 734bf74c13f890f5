"""Every command, as a user at a shell meets it: text and JSON, exact bytes, exit codes, places."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gitmem
from gitmem import Home
from tests.conftest import PERSONA, Done, FakeClock, run_git

Cli = Callable[..., Done]
SAMPLE = Path(gitmem.__file__).parent.parent / "sample-repo"
ODD_BYTES = {
    "crlf": b"a\r\nb\r\n\r\n",
    "bom": b"\xef\xbb\xbf\xe6\xbc\xa2\n",
    "no final newline": "最后一行没有换行".encode(),
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 𠮷野家 é é".encode(),
    "spaces": b"  \n\t x \x0b\x0c\x1b[31m \n\n",
    "lone cr": b"a\rb",
    "marks": b"<<<<<<< HEAD\n---\nstate: released\n",
    "dash": b"-- \n--json\n",
}


@pytest.fixture
def at_home(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """`cli` on a home with the persona YM001/ZY001, made by commands."""
    place = tmp_path / "home"
    cli("init", place, check=0)

    def run(*arguments: str | Path, **more: Any) -> Done:
        return cli("--home", place, *arguments, **more)

    run(
        "persona",
        "add",
        PERSONA,
        "--alias",
        "铸渊",
        "--human",
        "冰朔",
        "--timezone",
        "Asia/Shanghai",
        check=0,
    )
    yield run


def write(cli: Cli, text: str | bytes, *options: str) -> str:
    """Write a leaf; its trace path, which is all that stdout holds."""
    data = text.encode() if isinstance(text, str) else text
    done = cli("write", PERSONA, *options, data=data, check=0)
    assert done.text.endswith(".txt\n")
    assert done.text.count("\n") == 1
    return done.text.strip()


def is_oid(value: str) -> bool:
    return len(value) == 40 and not set(value) - set("0123456789abcdef")


# -- making -----------------------------------------------------------------------------------


def test_init_and_persona(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "a" / "home"
    first = cli("init", place, "--json", check=0).json()
    assert first == {"home": str(place), "personas": 0}
    assert place.stat().st_mode & 0o777 == 0o700
    run = lambda *words, **more: cli("--home", place, *words, **more)  # noqa: E731
    added = run(
        "persona", "add", PERSONA, "--alias", "铸渊", "--timezone", "Asia/Shanghai", "--json", check=0
    )
    assert added.json() == {"persona": PERSONA, "repository": str(place / "ym001/zy001.git")}
    assert run("persona", "list", check=0).text == f"{PERSONA}  (铸渊)\n"
    entry = {
        "persona": PERSONA, "aliases": ["铸渊"], "human": None, "timezone": "Asia/Shanghai", "epoch": None,
    }  # fmt: skip
    assert run("persona", "list", "--json", check=0).json() == {"entries": [entry], "next": None}
    shown = run("persona", "show", "铸渊", "--json", check=0).json()
    assert shown["persona"] == PERSONA
    assert shown["epochs"] == []
    assert "Asia/Shanghai" in run("persona", "show", "ym001/zy001", check=0).text
    assert cli("init", place, "--json", check=0).json()["personas"] == 1


def test_epoch(at_home: Cli) -> None:
    assert at_home("epoch", PERSONA, check=0).out == b""
    assert "D118" in at_home("epoch", PERSONA, "D118", check=0).text
    assert at_home("epoch", PERSONA, "--next", "--json", check=0).json() == {
        "epoch": "D119",
        "persona": PERSONA,
    }
    write(at_home, "甲")
    listed = at_home("epoch", PERSONA, "--json", check=0).json()
    assert listed["next"] is None
    assert [(e["epoch"], e["current"], e["texts"], e["records"]) for e in listed["entries"]] == [
        ("D118", False, 0, 0),
        ("D119", True, 1, 0),
    ]
    assert all(is_oid(e["commit"]) for e in listed["entries"])
    assert [line[0] for line in at_home("epoch", PERSONA, check=0).text.splitlines()] == [" ", "*"]


# -- writing and reading ----------------------------------------------------------------------


def test_write_answers_what_is_stored(at_home: Cli, tmp_path: Path, git: Any) -> None:
    words = ("--epoch", "D118", "--at", "2026-05-31T11:54:47", "--label", "rain", "--tag", "雨")
    done = at_home(
        "write", PERSONA, *words, "--role", "user", "--turn-id", "t1", "--json", data=b"x", check=0
    )
    value = done.json()
    assert set(value) == {"trace_path", "commit", "blob", "created"}
    assert value["trace_path"] == f"{PERSONA}/D118/raw/20260531-115447-rain.txt"
    assert value["created"] is True
    assert done.err == ""
    repository = tmp_path / "home/ym001/zy001.git"
    assert git(repository, "rev-parse", "D118").decode().strip() == value["commit"]
    assert git(repository, "cat-file", "blob", value["blob"]) == b"x"
    again = at_home(
        "write", PERSONA, "--role", "user", "--turn-id", "t1", "--json", data=b"x", check=0
    ).json()
    assert again == value | {"created": False, "commit": again["commit"]}
    other = at_home("write", PERSONA, "--role", "user", "--turn-id", "t1", data=b"y", check=4)
    assert (other.out, other.err.count("\n")) == (b"", 2)
    file = tmp_path / "some text"
    file.write_bytes(b"of a file\r\n")
    path = at_home("write", "铸渊", file, check=0).text.strip()
    assert at_home("trace", path, check=0).out == b"of a file\r\n"


@pytest.mark.parametrize("name", ODD_BYTES)
def test_bytes_come_back_exactly(at_home: Cli, name: str) -> None:
    path = write(at_home, ODD_BYTES[name])
    for verb in ("trace", "remember"):
        assert at_home(verb, path, check=0).out == ODD_BYTES[name]
    assert at_home("trace", path, "--json", check=0).json()["content"].encode() == ODD_BYTES[name]
    at_home("archive", path, check=0)
    assert at_home("remember", path, "--restore", check=0).out == ODD_BYTES[name]


def test_status_goes_to_stderr(at_home: Cli) -> None:
    path = write(at_home, "你好。", "--at", "2026-05-31T11:54:47+08:00")
    done = at_home("trace", path, check=0)
    assert done.err == f"active · 2026-05-31T11:54:47+08:00 · {path}\n"
    assert at_home("trace", path, "--json", check=0).err == ""


def test_trace_in_every_state(at_home: Cli) -> None:
    text = "第一句话在这里。第二句话在那里。第三句话在远处。"
    always = {"found", "content", "trace_path", "status", "ts"}
    path = write(at_home, text, "--at", "2026-05-31T11:54:47", "--summary", "三句话", "--epoch", "D118")
    active = at_home("trace", path, "--json", check=0).json()
    assert active == {
        "found": True, "content": text, "trace_path": path, "status": "active",
        "ts": "2026-05-31T11:54:47+08:00", "compressed_summary": "三句话", "parent_branch": "D118",
    }  # fmt: skip
    assert at_home("trace", path, "--mode", "archived", "--json", check=1).json() == {
        "found": False, "content": None, "trace_path": path, "status": "active", "ts": None,
        "reason": "active",
    }  # fmt: skip
    assert at_home("trace", path, "--epoch", "D117", "--json", check=1).json()["reason"] == "not_found"
    at_home("wither", path, "--keep", "0.4", check=0)
    withered = at_home("trace", path, "--json", check=0).json()
    assert withered["status"] == "wither"
    assert "……" in withered["content"]
    assert withered["content"].replace("……", "") in text
    at_home("archive", path, check=0)
    archived = at_home("trace", path, "--json", check=0).json()
    assert set(archived) == always | {
        "compressed_summary", "parent_branch", "archived_at", "compression_ratio",
    }  # fmt: skip
    assert (archived["content"], archived["status"]) == (text, "archived")
    assert archived["compression_ratio"] > 0
    assert archived["archived_at"].endswith("+08:00")
    assert at_home("trace", path, "--mode", "active", check=1).out == b""
    assert at_home("remember", path, "--json", check=0).json() == archived
    assert at_home("remember", path, "--restore", "--json", check=0).json() == active
    at_home("release", "--yes", path, check=0)
    gone = at_home("trace", path, "--json", check=1).json()
    assert gone == {
        "found": False, "content": None, "trace_path": path, "status": "released", "ts": None,
        "reason": "released",
    }  # fmt: skip
    assert at_home("trace", path, check=1).out == b""
    assert at_home("remember", path, "--restore", check=4).out == b""
    nowhere = path.replace("115447", "115448")
    assert at_home("trace", nowhere, "--json", check=1).json()["status"] == "not_found"
    assert set(at_home("remember", nowhere, "--json", check=1).json()) == always | {"reason"}


def test_not_found_is_an_answer(at_home: Cli) -> None:
    for path in ("YM001/ZY001/D1/raw/20260531-115447.txt", "YM001/NOBODY/D1/raw/20260531-115447.txt"):
        done = at_home("trace", path, "--json", check=1)
        assert done.json()["found"] is False
        assert done.err == ""
        assert at_home("trace", path, check=1).err.startswith("not found: ")
        assert at_home("remember", path, check=1).out == b""
        assert at_home("history", path, check=1).out == b""


def test_hnl(at_home: Cli) -> None:
    path = write(at_home, "甲", "--at", "2026-05-31T11:54:47", "--epoch", "D118")
    rest = path.removeprefix(f"{PERSONA}/")
    for string in (f"TRACE.{PERSONA}.{rest}.LEAF_TO_ROOT", f"REMEMBER.{path}"):
        assert at_home("hnl", string, check=0).text == "甲"
        assert at_home("hnl", string, "--json", check=0).json()["trace_path"] == path
    assert at_home("trace", f"TRACE.{PERSONA}.{rest}.LEAF_TO_ROOT", check=0).text == "甲"
    at_home("hnl", path, check=2)
    at_home("hnl", f"TRACE.{PERSONA}.{rest}", check=2)


def test_record(at_home: Cli) -> None:
    done = at_home(
        "record", PERSONA, "--id", "mem_abcd1234", "--tag", "t", "--human-visible", "--untold", "--json",
        data='{"题": [1, null, "é"]}'.encode(), check=0,
    )  # fmt: skip
    value = done.json()
    assert set(value) == {"trace_path", "commit", "blob", "created"}
    assert value["trace_path"].endswith("/hldp/mem_abcd1234.json")
    stored = json.loads(at_home("trace", value["trace_path"], check=0).out)
    assert stored["hldp"] == {"题": [1, None, "é"]}
    assert (stored["persona"], stored["human_visible"], stored["told"]) == (PERSONA, True, False)
    at_home("record", PERSONA, "--id", "mem_abcd1234", data=b"1", check=3)
    path = at_home("record", PERSONA, data=b"# Title\n", check=0).text.strip()
    assert json.loads(at_home("trace", path, check=0).out)["hldp"] == "# Title\n"
    looks = at_home("record", PERSONA, data=b'{"half": ', check=0)
    assert "looks like JSON" in looks.err
    path = at_home("record", PERSONA, "--text", data=b"[1]", check=0).text.strip()
    assert json.loads(at_home("trace", path, check=0).out)["hldp"] == "[1]"


# -- states -----------------------------------------------------------------------------------


def test_states_in_json(at_home: Cli) -> None:
    paths = [write(at_home, f"第{i}个。第二句。第三句。") for i in range(3)]
    archived = at_home("archive", *paths[:2], "--json", check=0).json()
    assert [r["trace_path"] for r in archived["results"]] == paths[:2]
    assert {r["status"] for r in archived["results"]} == {"archived"}
    assert all(
        set(r) == {"trace_path", "status", "commit"} and is_oid(r["commit"]) for r in archived["results"]
    )
    withered = at_home("wither", paths[2], "--json", check=0).json()
    assert [(r["trace_path"], r["status"]) for r in withered["results"]] == [(paths[2], "wither")]
    plan = at_home("release", "--dry-run", paths[0], "--json", check=0).json()
    assert plan["report"]["dry_run"] is True
    assert at_home("trace", paths[0], check=0).text.startswith("第0个")
    released = at_home("release", "--yes", *paths, "--json", check=0).json()
    assert set(released) == {"results", "report"}
    assert [r["trace_path"] for r in released["results"]] == paths
    assert {r["status"] for r in released["results"]} == {"released"}
    report = released["report"]
    assert set(report) == {"dry_run", "complete", "objects", "places", "notes"}
    assert (report["dry_run"], report["complete"]) == (False, True)
    assert report["objects"] > 0
    assert {place["status"] for place in report["places"]} <= {"purged", "not present"}
    assert "purged" in {place["status"] for place in report["places"]}


def test_states_in_text(at_home: Cli) -> None:
    path = write(at_home, "一句话。两句话。三句话。")
    assert path in at_home("archive", path, check=0).text
    at_home("remember", "--restore", path, check=0)
    assert path in at_home("wither", path, check=0).text
    done = at_home("wither", path, "--forget-original", check=0)
    assert "forgotten" in done.text
    done = at_home("release", "--yes", path, check=0)
    assert f"{path}  released" in done.text
    assert "git objects deleted" in done.text
    assert "Clones" in done.err


def test_release_asks_first(at_home: Cli) -> None:
    path = write(at_home, "留下")
    refused = at_home("release", path, check=4)
    assert "--yes" in refused.err
    refused = at_home("release", path, "--json", data=b"release\n", check=4)
    assert refused.json()["error"]["code"] == "refused"
    assert at_home("trace", path, check=0).text == "留下"


@pytest.mark.parametrize(("typed", "code"), [("no", 4), ("", 4), ("release", 0)])
def test_release_at_a_terminal(at_home: Cli, tmp_path: Path, typed: str, code: int) -> None:
    path = write(at_home, "在终端")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "gitmem", "--home", str(tmp_path / "home"), "release", path]
    child = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.close(theirs)
    os.write(ours, typed.encode() + b"\n")
    _, said = child.communicate(timeout=60)
    os.close(ours)
    assert child.returncode == code, said
    assert path in said.decode()
    assert at_home("trace", path).code == (1 if code == 0 else 0)


# -- lists ------------------------------------------------------------------------------------


def test_history(at_home: Cli, git: Any, tmp_path: Path) -> None:
    path = write(at_home, "一。二。三。", "--role", "user", "--epoch", "D118")
    at_home("archive", path, check=0)
    at_home("remember", "--restore", path, check=0)
    value = at_home("history", path, "--json", check=0).json()
    assert value["next"] is None
    leaf = path.removeprefix(f"{PERSONA}/D118/")
    assert [entry["subject"] for entry in value["entries"]] == [
        f"remember {leaf}",
        f"archive {leaf}",
        f"write {leaf}",
    ]
    assert set(value["entries"][0]) == {"commit", "subject", "author", "ts"}
    assert value["entries"][2]["author"] == "冰朔"
    log = git(tmp_path / "home/ym001/zy001.git", "log", "--format=%H", "D118", "--", leaf).decode().split()
    assert [entry["commit"] for entry in value["entries"]] == log
    assert [line.split()[0] for line in at_home("history", path, check=0).text.splitlines()] == [
        commit[:12] for commit in log
    ]


def test_timeline_pages_visit_each_leaf_once(at_home: Cli) -> None:
    written = [write(at_home, f"第{i}", "--at", f"2026-05-3{i % 2}T0{i // 4}:00:00") for i in range(11)]
    at_home("archive", written[3], check=0)
    at_home("release", "--yes", written[5], check=0)
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor:
        more = ["--before", cursor] if cursor else []
        page = at_home("timeline", PERSONA, "--limit", "3", "--json", *more, check=0).json()
        assert set(page) == {"entries", "next"}
        seen += [entry["trace_path"] for entry in page["entries"]]
        cursor = page["next"]
        pages += 1
    assert pages == 4
    assert len(seen) == len(set(seen))
    assert sorted(seen) == sorted(set(written) - {written[5]})
    entries = at_home("timeline", PERSONA, "--json", check=0).json()["entries"]
    assert [entry["trace_path"] for entry in entries] == seen
    times = [entry["ts"] for entry in entries]
    assert times == sorted(times, reverse=True)
    assert {entry["status"] for entry in entries} == {"active", "archived"}


def test_timeline_days_are_those_of_the_persona(at_home: Cli) -> None:
    late = write(at_home, "零点前", "--at", "2026-05-30T23:59:59")
    early = write(at_home, "零点后", "--at", "2026-05-30T16:00:00Z")
    assert early.endswith("20260531-000000.txt")
    for zone in ("UTC", "America/Los_Angeles", "Asia/Tokyo"):
        env = {"TZ": zone}
        day = at_home("timeline", PERSONA, "--since", "2026-05-31", "--until", "2026-05-31", env=env, check=0)
        assert early in day.text
        assert late not in day.text
        assert at_home("timeline", "铸渊", "--until", "2026-05-30", env=env, check=0).text.split()[-1] == late
    assert at_home("timeline", PERSONA, "--since", "2026-06-01", check=0).out == b""


def test_another_time_zone_changes_nothing(at_home: Cli) -> None:
    paths = [
        at_home(
            "write", PERSONA, "--at", "2026-03-29T02:30:00", "--label", zone[-4:].lower(), data=b"x",
            env={"TZ": zone}, check=0,
        ).text.strip()
        for zone in ("Europe/Berlin", "Pacific/Apia", "UTC")
    ]  # fmt: skip
    assert {path.rsplit("/", 1)[1][:15] for path in paths} == {"20260329-023000"}
    stamps = {at_home("trace", path, "--json", env={"TZ": "Asia/Kolkata"}).json()["ts"] for path in paths}
    assert stamps == {"2026-03-29T02:30:00+08:00"}


# -- where the home is ------------------------------------------------------------------------


def test_where_the_home_is(cli: Cli, tmp_path: Path) -> None:
    for name in "abc":
        cli("init", tmp_path / name, check=0)
        cli("--home", tmp_path / name, "persona", "add", f"{name}1/p", check=0)
    listed = lambda *words, **more: cli(*words, "persona", "list", check=0, **more).text  # noqa: E731
    env = {"GITMEM_HOME": str(tmp_path / "a")}
    assert listed(env=env) == "a1/p\n"
    assert listed("--home", tmp_path / "b", env=env) == "b1/p\n"
    assert cli("persona", "list", "--home", tmp_path / "c", env=env, check=0).text == "c1/p\n"
    data = {"XDG_DATA_HOME": str(tmp_path / "xdg")}
    place = cli("init", "--json", env=data, check=0).json()["home"]
    assert place == str(tmp_path / "xdg" / "gitmem")
    assert listed(env=data) == ""
    assert "No persona yet" in cli("persona", "list", env=data, check=0).err


def test_no_home_is_said_plainly(cli: Cli, tmp_path: Path) -> None:
    done = cli("--home", tmp_path / "nowhere", "persona", "list", check=5)
    assert "nowhere" in done.err
    assert "gitmem init" in done.err
    assert not (tmp_path / "nowhere").exists()
    bare = {"HOME": None, "XDG_DATA_HOME": None, "XDG_CONFIG_HOME": None}
    done = cli("--home", tmp_path / "here", "init", env=bare, check=0)
    assert cli("--home", tmp_path / "here", "persona", "list", env=bare, check=0).out == b""
    assert "Traceback" not in cli("persona", "list", env=bare).err


def test_options_stand_anywhere_and_errors_are_json_too(at_home: Cli, cli: Cli) -> None:
    done = at_home("trace", "--json", "no/path", check=2)
    assert set(done.json()["error"]) >= {"code", "message"}
    assert done.json()["error"]["code"] == "usage"
    assert done.err.count("\n") >= 1
    assert cli("--version", check=0).text == f"gitmem {gitmem.__version__}\n"
    assert "Usage:" in cli(check=2).err
    for word in ("--help", "-h"):
        assert "release" in cli(word, check=0).text


@pytest.mark.parametrize(
    "name",
    ["archive", "completion", "demo", "doctor", "epoch", "export", "history", "hnl", "import", "init",
     "maintain", "persona", "record", "release", "remember", "timeline", "trace", "wither", "write"],
)  # fmt: skip
def test_every_command_has_help(cli: Cli, name: str) -> None:
    said = cli(name, "--help", check=0).text
    assert said.startswith(f"Usage: gitmem {name}")
    assert len(said.splitlines()) > 4
    assert name in cli("--help", check=0).text


# -- exchange ---------------------------------------------------------------------------------


def trees(home: Path) -> dict[str, str]:
    """The tree of every epoch of every persona."""
    found = {}
    for repository in sorted(home.glob("*/*.git")):
        if not repository.name.endswith(".wiki.git"):
            lines = run_git(repository, "for-each-ref", "--format=%(refname:short) %(tree)", "refs/heads")
            for line in lines.decode().splitlines():
                branch, tree = line.split()
                if branch != "main":
                    found[f"{repository.parent.name}/{repository.name}/{branch}"] = tree
    return found


def traces(home: Path) -> dict[str, Any]:
    with Home(home, clock=FakeClock()) as opened:
        memories = [opened.persona(name) for name in opened.personas()]
        return {
            path: memory.trace(path).as_dict()
            for memory in memories
            for epoch in memory.epochs()
            for path in all_paths(memory, epoch)
        }


def all_paths(memory: Any, epoch: str) -> list[str]:
    names = (
        run_git(memory.repository.folder, "ls-tree", "-r", "-z", "--name-only", epoch).decode().split("\0")
    )
    stems = {name.removeprefix("meta/").rsplit(".", 1)[0] for name in names if name}
    return [
        f"{memory.name}/{epoch}/{stem}.{'txt' if stem.startswith('raw/') else 'json'}"
        for stem in sorted(stems)
    ]


def test_sample_export_and_back(cli: Cli, tmp_path: Path) -> None:
    first = cli("init", tmp_path / "one", "--from", SAMPLE, "--json", check=0).json()
    assert first["taken"] == 65
    assert first["left_out"] == []
    assert sorted(first["personas"]) == ["YM001/SY001", "YM001/ZY001"]
    done = cli("--home", tmp_path / "one", "export", tmp_path / "out", "--json", check=0).json()
    assert (done["personas"], done["leaves"], done["released"]) == (2, 62, 3)
    assert done["folder"] == str(tmp_path / "out")
    cli("init", tmp_path / "two", "--from", tmp_path / "out", check=0)
    assert trees(tmp_path / "one") == trees(tmp_path / "two")
    assert len(trees(tmp_path / "one")) == 3
    one = traces(tmp_path / "one")
    assert len(one) == 65
    assert {answer["status"] for answer in one.values()} == {"active", "wither", "archived", "released"}
    assert one == traces(tmp_path / "two")
    cli("--home", tmp_path / "two", "export", tmp_path / "out2", check=0)
    assert files(tmp_path / "out") == files(tmp_path / "out2")
    exported = {name: data for name, data in files(SAMPLE).items() if name != "README.md"}
    assert files(tmp_path / "out") == exported
    assert cli("--home", tmp_path / "one", "doctor", check=0).text.endswith("all is well.\n")
    assert cli("init", tmp_path / "one", "--from", SAMPLE).code == 3
    assert cli("--home", tmp_path / "one", "export", tmp_path / "out").code == 3


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_import_of_turns_is_idempotent(at_home: Cli, tmp_path: Path) -> None:
    file = tmp_path / "turns.jsonl"
    turns = [
        {
            "id": f"t{i // 2}",
            "ts": f"2026-0{5 + i // 4}-01T10:00:0{i}+08:00",
            "role": role,
            "text": f"话{i}\r\n",
        }
        for i, role in enumerate(["user", "companion"] * 3)
    ]
    lines = [json.dumps(turn, ensure_ascii=False) for turn in turns]
    file.write_text("\n".join([*lines, "not json", '{"id": "x"}', ""]), "utf-8")
    first = at_home("import", file, "--persona", PERSONA, "--json", check=0).json()
    assert (first["taken"], first["present"], len(first["left_out"])) == (6, 0, 2)
    assert first["epochs"] == ["M202605", "M202606"]
    assert [entry["where"] for entry in first["left_out"]] == [f"{file}:7", f"{file}:8"]
    before = trees(tmp_path / "home")
    again = at_home("import", file, "--persona", "铸渊", "--json", check=0).json()
    assert (again["taken"], again["present"]) == (0, 6)
    assert trees(tmp_path / "home") == before
    entries = at_home("timeline", PERSONA, "--json", check=0).json()["entries"]
    assert [(e["turn_id"], e["role"]) for e in entries] == [(t["id"], t["role"]) for t in turns][::-1]
    gone = entries[0]["trace_path"]
    at_home("release", "--yes", gone, check=0)
    third = at_home("import", file, "--persona", PERSONA, "--json", check=0).json()
    assert (third["taken"], third["present"]) == (0, 5)
    assert len(third["released"]) == 1
    assert gone in third["released"][0]
    assert at_home("trace", gone, check=1).out == b""
    file.write_text(lines[0].replace("话0", "另一句"), "utf-8")
    other = at_home("import", file, "--persona", PERSONA, "--json", check=0).json()
    assert (other["taken"], len(other["left_out"])) == (0, 1)
    assert "left out" in at_home("import", file, "--persona", PERSONA, check=0).text


@pytest.mark.parametrize(
    ("by", "epochs"), [("day", ["D20260501"]), ("month", ["M202605"]), ("OLD", ["OLD"]), ("a b", None)]
)
def test_import_epoch_by(at_home: Cli, tmp_path: Path, by: str, epochs: list[str] | None) -> None:
    file = tmp_path / "turns.jsonl"
    file.write_text('{"id": "1", "ts": "2026-05-01T00:30:00", "text": "x"}\n', "utf-8")
    done = at_home("import", file, "--persona", PERSONA, "--epoch-by", by, "--json")
    assert done.code == (0 if epochs else 2)
    assert not epochs or done.json()["epochs"] == epochs


def test_import_of_a_folder(at_home: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    kept = folder / "D117" / "raw"
    kept.mkdir(parents=True)
    (kept / "20260530-101010-kept.txt").write_bytes(b"kept\r\n")
    (kept / "20260530-101011.txt").write_bytes(b"other")
    (folder / "20260601-080000-loose.txt").write_bytes(b"by its name")
    (folder / "笔记.txt").write_bytes(b"by its date")
    os.utime(folder / "笔记.txt", (1780000000, 1780000000))
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "binary.txt").write_bytes(b"\xff\xfe")
    first = at_home("import", folder, "--persona", PERSONA, "--json", check=0).json()
    assert first["taken"] == 4
    assert sorted(Path(entry["where"]).name for entry in first["left_out"]) == ["binary.txt", "picture.png"]
    assert at_home("trace", f"{PERSONA}/D117/raw/20260530-101010-kept.txt", check=0).out == b"kept\r\n"
    again = at_home("import", folder, "--persona", PERSONA, "--json", check=0).json()
    assert (again["taken"], again["present"]) == (0, 4), again
    path = f"{PERSONA}/D117/raw/20260530-101011.txt"
    at_home("release", "--yes", path, check=0)
    third = at_home("import", folder, "--persona", PERSONA, "--json", check=0).json()
    assert third["taken"] == 0
    assert [path in line for line in third["released"]] == [True]
    assert at_home("import", folder, check=2).out == b""
    assert at_home("import", tmp_path / "nothing", "--persona", PERSONA, check=2).out == b""
    assert at_home("import", folder / "picture.png", "--persona", PERSONA, check=2).out == b""


def test_import_of_the_sample_layout(at_home: Cli, tmp_path: Path) -> None:
    first = at_home("import", SAMPLE, "--json", check=0).json()
    assert first["taken"] == 65
    before = trees(tmp_path / "home")
    again = at_home("import", SAMPLE, "--json", check=0).json()
    assert (again["taken"], again["present"], len(again["released"])) == (0, 62, 3)
    assert again["left_out"] == []
    assert trees(tmp_path / "home") == before
    path = f"{PERSONA}/D118/raw/20260531-115447.txt"
    at_home("release", "--yes", path, check=0)
    assert path in at_home("import", SAMPLE, "--json", check=0).json()["released"]
    assert at_home("trace", path, check=1).out == b""
    assert at_home("import", SAMPLE, "--persona", PERSONA, check=2).out == b""


def test_release_names_an_export(at_home: Cli, tmp_path: Path) -> None:
    path = write(at_home, "也在别处")
    at_home("export", tmp_path / "out", check=0)
    report = at_home("release", "--yes", path, "--json", check=0).json()["report"]
    assert report["complete"] is False
    place = next(place for place in report["places"] if "export" in place["place"])
    assert place["status"] == "could not reach"
    file = tmp_path / "out" / path
    assert str(file) in place["command"]
    assert file.read_bytes().decode() == "也在别处"
    assert subprocess.run(["sh", "-c", place["command"]], check=False).returncode == 0
    assert not file.exists()
    assert at_home("release", "--yes", path, "--json", check=0).json()["report"]["complete"] is True
    at_home("export", tmp_path / "out2", check=0)
    assert not any("也在别处".encode() in data for data in files(tmp_path / "out2").values())


# -- care -------------------------------------------------------------------------------------


def test_maintain_and_doctor(at_home: Cli) -> None:
    for epoch in ("D1", "D2", "D3"):
        write(at_home, epoch, "--epoch", epoch)
    value = at_home("maintain", "--json", check=0).json()
    assert value["next"] is None
    assert [(e["persona"], e["epochs"], e["swept"]) for e in value["entries"]] == [(PERSONA, 2, 0)]
    assert at_home("maintain", check=0).text == f"{PERSONA}: 0 epochs into 0 packs, 0 leavings swept\n"
    found = at_home("doctor", "--json", "--loop", check=0).json()
    assert set(found) == {"ok", "personas", "findings", "loop", "waiting"}
    assert (found["ok"], found["personas"], found["findings"]) == (True, 1, [])
    assert [step["step"] for step in found["loop"]] == ["write", "trace", "archive", "remember", "release"]
    assert all(step["ok"] for step in found["loop"])
    assert at_home("persona", "list", check=0).text == f"{PERSONA}  (铸渊)\n"
    assert "all is well" in at_home("doctor", check=0).text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(at_home: Cli, cli: Cli, shell: str, tmp_path: Path) -> None:
    script = cli("completion", shell, check=0).text
    assert "_GITMEM_COMPLETE" in script
    assert cli("completion", shell, "--json", check=0).json() == {
        "shell": shell,
        "script": script.removesuffix("\n"),
    }
    if shell == "bash":
        ran = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, b"")
        env = {
            "_GITMEM_COMPLETE": "bash_complete", "COMP_WORDS": "gitmem write ", "COMP_CWORD": "2",
            "GITMEM_HOME": str(tmp_path / "home"),
        }  # fmt: skip
        assert {line.partition(",")[2] for line in cli(env=env).text.splitlines()} == {PERSONA, "铸渊"}


def test_demo_twice(cli: Cli, tmp_path: Path) -> None:
    first = cli("demo", check=0)
    assert (tmp_path / "gitmem-demo" / "settings.yaml").is_file()
    assert "NOT ALL" not in first.text
    assert [line[:2] for line in first.text.splitlines()[:6]] == ["1.", "2.", "3.", "4.", "5.", "6."]
    second = cli("demo", "--json", check=0).json()
    assert second["home"] == str(tmp_path / "gitmem-demo-2")
    assert [step["status"] for step in second["steps"]] == [
        "active",
        "archived",
        "active",
        "wither",
        "released",
    ]
    assert cli("--home", tmp_path / "gitmem-demo-2", "doctor", check=0).text.startswith("2 personas")
    for line in first.text.splitlines():
        if line.startswith(("  gitmem ", "  git ")):
            words = line.split()
            command = [sys.executable, "-m", *words] if words[0] == "gitmem" else words
            ran = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False)
            assert ran.returncode == 0, ran.stderr
    assert cli("demo", tmp_path / "gitmem-demo").code == 3


def test_demo_in_a_chosen_folder(cli: Cli, tmp_path: Path) -> None:
    assert cli("demo", tmp_path / "d", "--from", SAMPLE, "--json", check=0).json()["taken"] == 65
    assert [path.name for path in tmp_path.glob("gitmem-demo*")] == []
    assert cli("demo", tmp_path / "e", "--from", tmp_path / "no", check=5).out == b""


# -- plain git --------------------------------------------------------------------------------


def test_plain_git_clone_and_show(cli: Cli, tmp_path: Path, git: Any) -> None:
    cli("init", tmp_path / "home", "--from", SAMPLE, check=0)
    git(tmp_path, "clone", "-q", str(tmp_path / "home/ym001/zy001.git"), "clone")
    clone = tmp_path / "clone"
    leaf = "raw/20260531-115447.txt"
    text = (SAMPLE / PERSONA / "D118" / leaf).read_bytes()
    assert git(clone, "show", f"origin/D118:{leaf}") == text
    assert git(clone, "rev-parse", "--abbrev-ref", "HEAD") == b"main\n"
    assert (clone / "gitmem.yaml").read_bytes() == (SAMPLE / PERSONA / "gitmem.yaml").read_bytes()
    assert git(clone, "fsck", "--full", "--strict", "--no-progress") == b""
    git(clone, "switch", "-q", "D118")
    (clone / "raw" / "20260605-090000.txt").write_bytes("从克隆里推来".encode())
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "by hand")
    git(clone, "push", "-q", "origin", "D118")
    path = f"{PERSONA}/D118/raw/20260605-090000.txt"
    assert cli("--home", tmp_path / "home", "trace", path, check=0).text == "从克隆里推来"
    page = cli("--home", tmp_path / "home", "timeline", PERSONA, "--limit", "1", "--json", check=0).json()
    assert page["entries"][0]["trace_path"] == path


def test_a_closed_pipe_is_no_fault(at_home: Cli, tmp_path: Path) -> None:
    for i in range(3):
        write(at_home, f"{i}\n" * 20000)
    path = write(at_home, "x\n" * 200000)
    command = f"'{sys.executable}' -m gitmem --home '{tmp_path}/home' trace {path} | head -c 10"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert ran.stdout == b"x\nx\nx\nx\nx\n"
    assert b"Traceback" not in ran.stderr
    assert b"Exception" not in ran.stderr
