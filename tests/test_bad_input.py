"""What must not be: malformed words, damaged files, illegal moves. One clear line, and nothing changed."""

from __future__ import annotations

import os
import re
import sqlite3
import unicodedata
from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitmem import (
    ConflictError,
    CorruptError,
    GitmemError,
    Home,
    Memory,
    NotFoundError,
    Reach,
    RefusedError,
    State,
    TracePath,
    UnavailableError,
    UsageError,
)
from gitmem.cli import cli as root
from gitmem.cli.run import guarded
from gitmem.doctor import check_home
from gitmem.export import export
from gitmem.importers.stored import init_from
from gitmem.maintain import maintain
from gitmem.receive.install import uninstall
from gitmem.store.pack import loose_path
from gitmem.tracepath import parse_hnl
from tests.conftest import PERSONA, Done, FakeClock, run_git

Cli = Callable[..., Done]
GOOD = f"{PERSONA}/D118/raw/20260531-115447.txt"
TEXT = "第一句话在这里。第二句话在那里。第三句话在远处。"

BAD_PATHS = {
    # what is wrong: (path, words that the one line must hold)
    "too few parts": ("YM001/ZY001/D118", ["trace path", "five parts"]),
    "too many parts": (GOOD + "/x", ["trace path", "five parts"]),
    "empty": ("", ["trace path"]),
    "absolute": ("/" + GOOD, ["trace path"]),
    "root empty": ("/ZY001/D118/raw/20260531-115447.txt", ["root"]),
    "root dots": ("../ZY001/D118/raw/20260531-115447.txt", ["root"]),
    "root reserved": ("api/ZY001/D118/raw/20260531-115447.txt", ["root", "reserved"]),
    "root not ASCII": ("铸/ZY001/D118/raw/20260531-115447.txt", ["root"]),
    "root too long": ("a" * 41 + "/ZY001/D118/raw/20260531-115447.txt", ["root", "40"]),
    "persona dash": ("YM001/-ZY001/D118/raw/20260531-115447.txt", ["persona"]),
    "persona .git": ("YM001/ZY001.git/D118/raw/20260531-115447.txt", ["persona", ".git"]),
    "persona .wiki": ("YM001/ZY001.WIKI/D118/raw/20260531-115447.txt", ["persona", ".WIKI"]),
    "persona double dot": ("YM001/ZY..001/D118/raw/20260531-115447.txt", ["persona"]),
    "epoch main": ("YM001/ZY001/main/raw/20260531-115447.txt", ["epoch", "main"]),
    "epoch Head": ("YM001/ZY001/Head/raw/20260531-115447.txt", ["epoch"]),
    "epoch digit": ("YM001/ZY001/1D/raw/20260531-115447.txt", ["epoch"]),
    "epoch dots": ("YM001/ZY001/D..1/raw/20260531-115447.txt", ["epoch"]),
    "epoch lock": ("YM001/ZY001/D1.lock/raw/20260531-115447.txt", ["epoch", "lock"]),
    "epoch too long": ("YM001/ZY001/D" + "1" * 32 + "/raw/20260531-115447.txt", ["epoch"]),
    "kind": ("YM001/ZY001/D118/meta/20260531-115447.txt", ["kind", "raw", "hldp"]),
    "name ending": ("YM001/ZY001/D118/raw/20260531-115447.md", ["leaf name"]),
    "name no date": ("YM001/ZY001/D118/raw/20260231-115447.txt", ["leaf name", "date"]),
    "name hour": ("YM001/ZY001/D118/raw/20260531-245447.txt", ["leaf name", "date"]),
    "name label": ("YM001/ZY001/D118/raw/20260531-115447-RAIN.txt", ["label"]),
    "name label empty": ("YM001/ZY001/D118/raw/20260531-115447-.txt", ["leaf name"]),
    "name newline": ("YM001/ZY001/D118/raw/20260531-115447.txt\n", ["leaf name"]),
    "name wide digits": ("YM001/ZY001/D118/raw/２０２６0531-115447.txt", ["leaf name"]),
    "record name": ("YM001/ZY001/D118/hldp/mem_short.json", ["record name"]),
    "record as raw": ("YM001/ZY001/D118/raw/mem_abcd1234.json", ["leaf name"]),
    "hnl without end": ("TRACE." + GOOD, ["LEAF_TO_ROOT"]),
    "hnl bad leaf": ("REMEMBER.YM001/ZY001/D118/raw/x", ["leaf name"]),
}
ON_A_PATH = ("trace", "remember", "history", "archive", "wither", "release")
ONE_PATH = ("trace", "remember", "history", "archive", "wither", "release", "hnl")


def refs_of(memory: Memory) -> bytes:
    """Every ref: what must be the same where nothing was changed."""
    return run_git(memory.repository.folder, "for-each-ref")


def plain(done: Done) -> str:
    """The one line that a refused command says, and that it is one."""
    lines = done.err.splitlines()
    assert lines, done
    assert lines[0].startswith("gitmem: ")
    assert all(line.startswith("  ") for line in lines[1:]), done.err
    assert len(lines) <= 2, done.err
    assert "Traceback" not in done.err
    assert done.out == b""
    return lines[0]


@pytest.fixture
def main(home: Home, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command line on `home`, in this process: as fast as a function."""

    def run(*arguments: str) -> Done:
        code = guarded(root, ["--home", str(home.path), *arguments])
        out, err = capfd.readouterr()
        return Done(code, out.encode("utf-8", "surrogateescape"), err)

    return run


# -- words ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", BAD_PATHS)
def test_malformed_path(what: str, memory: Memory, main: Callable[..., Done]) -> None:
    path, words = BAD_PATHS[what]
    memory.write(TEXT, epoch="D118", at="2026-05-31T11:54:47")
    before = refs_of(memory)
    for verb in ONE_PATH:
        done = main(verb, "--", path)
        assert done.code == 2, verb
        line = plain(done)
        assert verb == "hnl" or all(word in line for word in words), line
    for verb in ON_A_PATH:
        with pytest.raises(UsageError):
            getattr(memory, verb)(path)
    assert refs_of(memory) == before


BAD_OPTIONS = {
    "epoch main": (["write", PERSONA, "--epoch", "main"], ["epoch"]),
    "epoch slash": (["write", PERSONA, "--epoch", "a/b"], ["epoch"]),
    "epoch space": (["epoch", PERSONA, "D 1"], ["epoch"]),
    "time word": (["write", PERSONA, "--at", "yesterday"], ["at", "ISO 8601"]),
    "time month 13": (["write", PERSONA, "--at", "2026-13-01T00:00:00"], ["at", "ISO 8601"]),
    "time February 30": (["write", PERSONA, "--at", "2026-02-30T00:00:00"], ["at"]),
    "time out of range": (["write", PERSONA, "--at", "0001-01-01T00:00:00+14:00"], ["at", "range"]),
    "time far": (["write", PERSONA, "--at", "9999-12-31T23:59:59-12:00"], ["at", "range"]),
    "label upper case": (["write", PERSONA, "--label", "Rain"], ["label"]),
    "label Chinese": (["write", PERSONA, "--label", "雨"], ["label"]),
    "label slash": (["write", PERSONA, "--label", "a/../b"], ["label"]),
    "label empty": (["write", PERSONA, "--label", ""], ["label"]),
    "label too long": (["write", PERSONA, "--label", "a" * 65], ["label", "64"]),
    "tag newline": (["write", PERSONA, "--tag", "a\nb"], ["tag"]),
    "tag empty": (["write", PERSONA, "--tag", " "], ["tag"]),
    "tag too long": (["write", PERSONA, "--tag", "a" * 65], ["tag", "64"]),
    "role control": (["write", PERSONA, "--role", "\x1b[1m"], ["role"]),
    "turn id too long": (["write", PERSONA, "--turn-id", "a" * 201], ["turn_id", "200"]),
    "summary too long": (["write", PERSONA, "--summary", "a" * 2001], ["summary", "2000"]),
    "record id": (["record", PERSONA, "--id", "mem_X"], ["record id"]),
    "keep": (["wither", GOOD, "--keep", "1.5"], ["keep"]),
    "keep nan": (["wither", GOOD, "--keep", "nan"], ["keep"]),
    "keep word": (["wither", GOOD, "--keep", "half"], ["keep"]),
    "mode": (["trace", GOOD, "--mode", "sharp"], ["--mode"]),
    "trace epoch": (["trace", GOOD, "--epoch", "HEAD"], ["epoch"]),
    "limit zero": (["timeline", PERSONA, "--limit", "0"], ["limit"]),
    "limit huge": (["timeline", PERSONA, "--limit", "1001"], ["limit", "1000"]),
    "limit word": (["timeline", PERSONA, "--limit", "x"], ["--limit"]),
    "cursor": (["timeline", PERSONA, "--before", "1_2_3"], ["cursor"]),
    "since": (["timeline", PERSONA, "--since", "soon"], ["since"]),
    "until": (["timeline", PERSONA, "--until", "2026-02-30"], ["until"]),
    "option": (["write", PERSONA, "--colour", "red"], ["--colour"]),
    "command": (["forget", PERSONA], ["forget"]),
    "argument missing": (["trace"], ["PATH"]),
    "argument too many": (["trace", GOOD, GOOD], []),
    "file missing": (["write", PERSONA, "/no/such/file"], ["/no/such/file"]),
    "file is a folder": (["write", PERSONA, "/"], ["folder"]),
    "persona form": (["write", "YM001/ZY001/D1"], ["persona"]),
    "persona dots": (["timeline", "YM001/.."], ["persona"]),
    "persona add": (["persona", "add", "YM001"], ["persona"]),
    "zone": (["persona", "add", "YM001/FRESH", "--timezone", "Mars/Base"], ["time zone", "Mars/Base"]),
    "zone path": (["persona", "add", "YM001/FRESH", "--timezone", "../../etc/passwd"], ["time zone"]),
    "zone absolute": (["persona", "add", "YM001/FRESH", "--timezone", "/etc/localtime"], ["time zone"]),
    "zone empty": (["persona", "add", "YM001/FRESH", "--timezone", ""], ["time zone"]),
    "alias slash": (["persona", "add", "YM001/FRESH", "--alias", "a/b"], ["alias"]),
    "alias empty": (["persona", "add", "YM001/FRESH", "--alias", ""], ["alias"]),
    "human control": (["persona", "add", "YM001/FRESH", "--human", "a\tb"], ["human"]),
    "several personas": (["archive", GOOD, GOOD.replace("ZY001", "SY001")], ["personas"]),
    "shell": (["completion", "tcsh"], ["tcsh"]),
}


@pytest.mark.parametrize("what", BAD_OPTIONS)
def test_malformed_option(what: str, memory: Memory, main: Callable[..., Done]) -> None:
    arguments, words = BAD_OPTIONS[what]
    memory.write(TEXT, epoch="D118", at="2026-05-31T11:54:47")
    before = refs_of(memory)
    file = Path(memory.repository.folder).parent.parent / "text"
    file.write_text("x", "utf-8")
    if arguments[:2] in (["write", PERSONA], ["record", PERSONA]) and not arguments[2].startswith("/"):
        arguments = [*arguments, str(file)]
    done = main(*arguments)
    assert done.code == 2
    line = plain(done)
    assert all(word in line for word in words), line
    assert refs_of(memory) == before


def test_in_another_process_too(memory: Memory, home: Home, cli: Cli) -> None:
    """What the tests above do inside this process is the same from a shell."""
    memory.write("是", epoch="D1")
    before = refs_of(memory)
    run = lambda *words, **more: cli("--home", home.path, *words, **more)  # noqa: E731
    assert "leaf name" in plain(run("trace", GOOD + "x", check=2))
    assert "label" in plain(run("write", PERSONA, "--label", "雨", data=b"x", check=2))
    assert "persona" in plain(run("timeline", "YM001/..", check=2))
    assert "NOBODY" in plain(run("timeline", "YM001/NOBODY", check=1))
    assert "无名" in plain(run("timeline", "无名", check=1))
    assert "does not exist" in plain(run("archive", GOOD, check=1))
    assert refs_of(memory) == before


def test_refused_write_begins_no_epoch(memory: Memory, home: Home, main: Callable[..., Done]) -> None:
    """Nothing was changed: not even the branch that the leaf would have gone to."""
    before = refs_of(memory)
    for bad in ({"text": b""}, {"text": "x", "label": "雨"}, {"text": "x", "at": "soon"}):
        with pytest.raises(UsageError):
            memory.write(**bad, epoch="D7")
    with pytest.raises(UsageError):
        memory.record(float("nan"), epoch="D7")
    assert main("write", PERSONA, os.devnull, "--epoch", "D7").code == 2
    assert refs_of(memory) == before


BAD_TEXTS = {
    "empty": (b"", "empty"),
    "not UTF-8": (b"abc\xff", "UTF-8"),
    "half a character": ("雨".encode()[:2], "UTF-8"),
    "surrogate": (b"\xed\xa0\x80", "UTF-8"),
    "UTF-16": ("雨天".encode("utf-16"), "UTF-8"),
    "NUL": (b"a\0b", "NUL"),
    "over the limit": (b"x" * (1024 * 1024 + 1), "1048576"),
}


@pytest.mark.parametrize("what", BAD_TEXTS)
def test_bad_text(what: str, memory: Memory, home: Home, cli: Cli) -> None:
    data, word = BAD_TEXTS[what]
    memory.write("是", epoch="D1")
    before = refs_of(memory)
    assert word in plain(cli("--home", home.path, "write", PERSONA, data=data, check=2))
    assert plain(cli("--home", home.path, "record", PERSONA, data=data, check=2))
    with pytest.raises(UsageError, match=word):
        memory.write(data)
    for user, companion in ((data, b"ok"), (b"ok", data)):
        with pytest.raises(UsageError):
            memory.write_turn("t", user=user, companion=companion)
    assert refs_of(memory) == before


def test_text_at_the_limit(memory: Memory) -> None:
    text = "雨" * (1024 * 1024 // 3) + "x"
    assert len(text.encode()) == 1024 * 1024
    leaf = memory.write(text)
    assert memory.trace(leaf.trace_path).content == text


@pytest.mark.parametrize("value", ["\ud800", "a\0b", "", 5, None, ["x"]])
def test_bad_text_from_python(memory: Memory, value: Any) -> None:
    memory.write("是", epoch="D1")
    before = refs_of(memory)
    with pytest.raises(UsageError):
        memory.write(value)
    assert refs_of(memory) == before


@pytest.mark.parametrize(
    "value", [float("nan"), {1: 2}, {"a": {2}}, object(), "\ud800", b"bytes", {"x": float("inf")}]
)
def test_bad_record(memory: Memory, value: Any) -> None:
    memory.write("是", epoch="D1")
    before = refs_of(memory)
    with pytest.raises(UsageError):
        memory.record(value)
    assert refs_of(memory) == before


# -- times ------------------------------------------------------------------------------------


def test_times_are_those_of_the_personas_zone(home: Home) -> None:
    berlin = home.add_persona("YM001/BERLIN", timezone="Europe/Berlin")
    for skipped in ("2026-03-29T02:30:00", datetime(2026, 3, 29, 2, 30)):
        with pytest.raises(UsageError, match="does not exist in Europe/Berlin"):
            berlin.write("x", at=skipped)
    assert berlin.epochs() == [] or all(epoch.texts == 0 for epoch in berlin.epochs())
    first = berlin.write("first", at="2026-10-25T02:30:00")
    assert first.ts == "2026-10-25T02:30:00+02:00"
    second = berlin.write("second", at="2026-10-25T02:30:00+01:00")
    assert second.ts == "2026-10-25T02:30:00+01:00"
    assert berlin.trace(second.trace_path).ts == second.ts
    assert berlin.trace(first.trace_path).ts == first.ts
    entries = [entry.trace_path for entry in berlin.timeline().entries]
    assert entries == [second.trace_path, first.trace_path]
    naive = berlin.write("naive", at="2026-07-01T12:00:00")
    assert naive.ts == "2026-07-01T12:00:00+02:00"
    aware = berlin.write("aware", at="2026-07-01T12:00:00.999+00:00")
    assert (aware.ts, aware.trace_path.name) == ("2026-07-01T14:00:00+02:00", "20260701-140000.txt")
    day = berlin.write("day", at=date(2026, 7, 2))
    assert day.trace_path.name == "20260702-000000.txt"


def test_skipped_time_on_the_command_line(home: Home, main: Callable[..., Done], tmp_path: Path) -> None:
    home.add_persona("YM001/BERLIN", timezone="Europe/Berlin")
    file = tmp_path / "x"
    file.write_text("x", "utf-8")
    done = main("write", "YM001/BERLIN", str(file), "--at", "2026-03-29T02:30:00")
    assert done.code == 2
    assert "does not exist in Europe/Berlin" in plain(done)


# -- whose ------------------------------------------------------------------------------------


def test_foreign_path_is_refused_without_a_hint(memory: Memory, home: Home) -> None:
    other = home.add_persona("YM001/SY001")
    there = other.write("秘密", at="2026-05-31T11:54:47", epoch="D118").trace_path
    nowhere = there.replace("115447", "115448")
    said = set()
    for path in (there, nowhere, there.replace("D118", "D7"), there.replace("SY001", "NOBODY")):
        for verb in ON_A_PATH:
            with pytest.raises(RefusedError) as caught:
                getattr(memory, verb)(path)
            said.add(str(caught.value).replace(path, "PATH"))
        with pytest.raises(RefusedError), memory.transaction() as tx:
            tx.archive(path)
    assert len(said) == 1
    assert other.trace(there).content == "秘密"


def test_unknown_persona(home: Home, main: Callable[..., Done], memory: Memory) -> None:
    for name in ("YM001/NOBODY", "无名"):
        with pytest.raises(NotFoundError):
            home.persona(name)
        assert main("timeline", name).code == 1
        assert main("persona", "show", name).code == 1
        assert main("epoch", name, "D5").code == 1
    assert main("archive", "YM001/NOBODY/D1/raw/20260531-115447.txt").code == 1
    assert not (home.path / "ym001" / "nobody.git").exists()
    with pytest.raises(ConflictError):
        home.add_persona("ym001/zy001")
    with pytest.raises(ConflictError):
        home.add_persona("YM001/FRESH", aliases=["铸渊"])
    assert home.personas() == [PERSONA]


# -- moves ------------------------------------------------------------------------------------


def put_into(memory: Memory, state: str) -> str:
    path = memory.write(TEXT, epoch="D1").trace_path
    if state == "withered":
        memory.wither(path)
    elif state == "archived":
        memory.archive(path)
    elif state == "released":
        memory.release(path)
    return path


VERBS: dict[str, Callable[[Memory, str], Any]] = {
    "archive": lambda m, path: m.archive(path),
    "wither": lambda m, path: m.wither(path),
    "restore": lambda m, path: m.remember(path, restore=True),
    "release": lambda m, path: m.release(path),
}
OUTCOMES = {
    ("active", "archive"): "archived", ("active", "wither"): "wither", ("active", "restore"): "active",
    ("active", "release"): "released", ("withered", "archive"): "archived", ("withered", "wither"): None,
    ("withered", "restore"): "active", ("withered", "release"): "released", ("archived", "archive"): None,
    ("archived", "wither"): None, ("archived", "restore"): "active", ("archived", "release"): "released",
    ("released", "archive"): None, ("released", "wither"): None, ("released", "restore"): None,
    ("released", "release"): "released",
}  # fmt: skip


@pytest.mark.parametrize(("state", "verb"), OUTCOMES)
def test_every_move(memory: Memory, state: str, verb: str) -> None:
    path = put_into(memory, state)
    memory.write("还有一个", epoch="D1")
    before, answer = refs_of(memory), memory.trace(path)
    wanted = OUTCOMES[state, verb]
    if wanted is None:
        with pytest.raises(RefusedError) as caught:
            VERBS[verb](memory, path)
        assert state in str(caught.value)
        assert (refs_of(memory), memory.trace(path)) == (before, answer)
    else:
        VERBS[verb](memory, path)
        assert memory.trace(path).status == wanted
    assert {state for state, _ in OUTCOMES} == set(State)


def test_moves_of_many_are_all_or_none(memory: Memory) -> None:
    fresh = [memory.write(f"{i}。二。三。", epoch=f"D{i}").trace_path for i in range(1, 4)]
    archived = put_into(memory, "archived")
    before = refs_of(memory)
    nowhere = fresh[0].replace("raw/2026", "raw/2025")
    for bad, kind in ((archived, RefusedError), (nowhere, NotFoundError)):
        with pytest.raises(kind):
            memory.archive(*fresh, bad)
        assert refs_of(memory) == before
    with pytest.raises(NotFoundError):
        memory.release(*fresh, nowhere)
    assert refs_of(memory) == before


def test_records_and_short_texts_do_not_wither(memory: Memory) -> None:
    record = memory.record({"a": 1}).trace_path
    short = memory.write("雨").trace_path
    before = refs_of(memory)
    for path in (record, short):
        with pytest.raises(RefusedError, match=re.escape(path.split("/", 3)[3])):
            memory.wither(path)
    with pytest.raises(RefusedError):
        memory.set_visible(short, True)
    assert refs_of(memory) == before


def test_released_names_and_turns_never_return(memory: Memory, clock: FakeClock) -> None:
    path = memory.write(TEXT, epoch="D1", turn_id="t", role="user").trace_path
    record = memory.record(1, id="mem_abcd1234", epoch="D1").trace_path
    memory.release(path, record)
    for epoch in ("D1", "D2"):
        again = memory.write(TEXT, epoch=epoch, at=clock.now)
        assert again.trace_path.name != path.rsplit("/", 1)[1]
        with pytest.raises(RefusedError):
            memory.record(1, id="mem_abcd1234", epoch=epoch)
    turn = memory.write("再说一次", turn_id="t", role="user")
    assert (turn.created, turn.trace_path, turn.blob) == (False, path, None)


# -- damage -----------------------------------------------------------------------------------


@pytest.fixture
def damaged(memory: Memory, home: Home) -> Iterator[tuple[Home, Memory, str, str]]:
    """A home with two leaves, both loose; the handle is closed so that nothing is remembered."""
    leaf = memory.write(TEXT, epoch="D1", at="2026-05-31T11:54:47")
    other = memory.write("另一个", epoch="D2", at="2026-05-31T11:54:48")
    assert leaf.blob
    yield home, memory, leaf.trace_path, leaf.blob
    assert other.created


def object_file(memory: Memory, oid: str) -> Path:
    return Path(loose_path(memory.repository.objects, bytes.fromhex(oid)))


def again(home: Home) -> Memory:
    """The same memory, opened as if for the first time."""
    home.close()
    return home.persona(PERSONA)


@pytest.mark.parametrize("how", ["missing", "garbage", "cut short", "another object"])
def test_damaged_object(damaged: tuple[Home, Memory, str, str], cli: Cli, how: str) -> None:
    home, memory, path, blob = damaged
    file = object_file(memory, blob)
    file.chmod(0o644)
    if how == "missing":
        file.unlink()
    elif how == "garbage":
        file.write_bytes(b"garbage")
    elif how == "cut short":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        other = memory.repository.view("D2")
        assert other is not None
        file.write_bytes(object_file(memory, next(iter(other.names("raw").values())).hex()).read_bytes())
    before = refs_of(memory)
    fresh = again(home)
    for verb in ("trace", "remember", "archive", "wither"):
        with pytest.raises(CorruptError, match=blob):
            getattr(fresh, verb)(path)
    done = cli("--home", home.path, "trace", path, check=5)
    assert blob in plain(done)
    done = cli("--home", home.path, "doctor", check=5)
    assert blob in done.text
    assert refs_of(memory) == before
    assert fresh.trace(f"{PERSONA}/D2/raw/20260531-115448.txt").content == "另一个"
    assert fresh.timeline().entries[1].trace_path == path, "nothing is taken for deleted"


def test_damaged_object_stops_an_export(damaged: tuple[Home, Memory, str, str], tmp_path: Path) -> None:
    home, memory, _, blob = damaged
    object_file(memory, blob).unlink()
    again(home)
    with pytest.raises(CorruptError, match=blob):
        export(home, tmp_path / "out")
    assert [item.name for item in tmp_path.iterdir() if "out" in item.name] == []


@pytest.mark.parametrize("which", ["tree", "commit"])
def test_missing_tree_or_commit(damaged: tuple[Home, Memory, str, str], cli: Cli, which: str) -> None:
    home, memory, path, _ = damaged
    spec = "D1^{tree}" if which == "tree" else "D1"
    oid = run_git(memory.repository.folder, "rev-parse", spec).decode().strip()
    before = refs_of(memory)
    object_file(memory, oid).unlink()
    for words in (["trace", path], ["timeline", PERSONA], ["archive", path], ["release", "--yes", path]):
        done = cli("--home", home.path, *words, check=5)
        assert oid in plain(done), words
    assert run_git(memory.repository.folder, "for-each-ref", "--format=%(refname)", ok=(0, 128))
    (home.path / "index.db").unlink()
    assert oid in plain(cli("--home", home.path, "timeline", PERSONA, check=5))
    assert oid in cli("--home", home.path, "doctor", check=5).text
    ref = Path(memory.repository.folder, "refs/heads/D1").read_bytes().strip()
    assert ref in before, "the branch is where it was"


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"0123\n", b"\0" * 41, b"ref: \n"])
def test_damaged_ref(damaged: tuple[Home, Memory, str, str], cli: Cli, content: bytes) -> None:
    home, memory, path, _ = damaged
    file = Path(memory.repository.folder, "refs/heads/D1")
    before = file.read_bytes()
    file.write_bytes(content)
    writing = ["write", PERSONA, "--epoch", "D1"]
    for words in (["trace", path], ["timeline", PERSONA], ["archive", path], writing):
        done = cli("--home", home.path, *words, data=b"x")
        assert done.code == 5, words
        assert "refs/heads/D1" in plain(done)
    assert file.read_bytes() == content
    assert cli("--home", home.path, "doctor", check=5).text.count("D1") >= 1
    done = cli("--home", home.path, "trace", f"{PERSONA}/D2/raw/20260531-115448.txt")
    assert done.text == "另一个" if done.code == 0 else "refs/heads/D1" in plain(done)
    file.write_bytes(before)
    assert cli("--home", home.path, "trace", path, check=0).text == TEXT


@pytest.mark.parametrize("place", ["refs/heads", "refs", "objects", "objects/pack"])
@pytest.mark.parametrize("how", ["file", "unreadable", "link"])
def test_unreadable_folder(damaged: tuple[Home, Memory, str, str], cli: Cli, place: str, how: str) -> None:
    home, memory, path, _ = damaged
    folder = Path(memory.repository.folder, place)
    aside = folder.with_name("aside")
    if how == "unreadable":
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        folder.chmod(0)
    else:
        folder.rename(aside)
        if how == "file":
            folder.write_bytes(b"")
        else:
            folder.symlink_to("nowhere")
    writing = ["write", PERSONA, "--epoch", "D1"]
    codes = {}
    for command in (["timeline", PERSONA], ["trace", path], writing, ["doctor"], ["maintain"]):
        done = cli("--home", home.path, *command, data=b"x")
        assert "Traceback" not in done.err, done.err
        codes[command[0]] = done.code
    expected = dict.fromkeys(("timeline", "trace", "write", "doctor", "maintain"), 5)
    if place == "objects/pack":  # everything is loose: reading and writing go on
        expected |= {name: 0 for name, code in codes.items() if code == 0 and name != "maintain"}
    assert codes == expected
    if how == "unreadable":
        folder.chmod(0o755)
    else:
        folder.unlink()
        aside.rename(folder)
    fresh = again(home)
    assert fresh.trace(path).content == TEXT
    assert [entry.trace_path for entry in fresh.timeline().entries][-1] == path
    run_git(memory.repository.folder, "fsck", "--full")


def test_missing_repository_is_no_deleted_persona(damaged: tuple[Home, Memory, str, str], cli: Cli) -> None:
    home, memory, path, _ = damaged
    root = home.path / "ym001"
    root.rename(home.path / ".aside")
    root.write_bytes(b"")
    done = cli("--home", home.path, "trace", path)
    assert (done.code, done.out) == (5, b""), done.err
    assert cli("--home", home.path, "timeline", PERSONA).code == 5
    root.unlink()
    root.symlink_to("nowhere")
    done = cli("--home", home.path, "trace", path)
    assert (done.code, done.out) == (5, b""), done.err
    root.unlink()
    (home.path / ".aside").rename(root)
    assert cli("--home", home.path, "trace", path, check=0).text == TEXT
    assert memory.name == PERSONA


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"- a list\n", b"root: YM001\n", b"root: YM001\npersona: ZY001\nformat: 2\n", b"a: [\n"],
)
def test_damaged_manifest(damaged: tuple[Home, Memory, str, str], cli: Cli, content: bytes) -> None:
    home, memory, path, _ = damaged
    folder = memory.repository.folder
    blob = run_git(folder, "hash-object", "-w", "--stdin", data=content).decode().strip()
    tree = run_git(folder, "mktree", data=f"100644 blob {blob}\tgitmem.yaml\n".encode()).decode().strip()
    commit = run_git(folder, "commit-tree", "-m", "x", tree).decode().strip()
    run_git(folder, "update-ref", "refs/heads/main", commit)
    before = refs_of(memory)
    for words in (["trace", path], ["write", PERSONA], ["persona", "list"], ["release", "--yes", path]):
        done = cli("--home", home.path, *words, data=b"x")
        assert done.code == 5, (words, done)
        assert "gitmem.yaml" in plain(done)
    assert "gitmem.yaml" in cli("--home", home.path, "doctor", check=5).text
    assert refs_of(memory) == before


@pytest.mark.parametrize(
    ("content", "code", "word"),
    [
        (b"max_leaf_byte: 5\n", 2, "max_leaf_bytes"),
        (b"max_leaf_bytes: -1\n", 2, "max_leaf_bytes"),
        (b"max_leaf_bytes: many\n", 2, "max_leaf_bytes"),
        (b"demo: 1\n", 2, "demo"),
        (b"a: [\n", 5, "settings.yaml"),
        (b"\xff\xfe", 5, "settings.yaml"),
        (b"- 1\n", 5, "settings.yaml"),
    ],
)
def test_broken_settings(memory: Memory, home: Home, cli: Cli, content: bytes, code: int, word: str) -> None:
    (home.path / "settings.yaml").write_bytes(content)
    for words in (["persona", "list"], ["trace", GOOD], ["doctor"]):
        done = cli("--home", home.path, *words, check=code)
        said = done.err
        assert "settings.yaml" in said
        assert word in said
    assert (home.path / "settings.yaml").read_bytes() == content
    assert memory.name == PERSONA


@pytest.mark.parametrize(
    "content", [None, b"", b"garbage" * 1000, b"SQLite format 3\0" + b"\1" * 5000, "another"]
)
def test_catalog_recovers(damaged: tuple[Home, Memory, str, str], cli: Cli, content: Any) -> None:
    home, memory, path, _ = damaged
    memory.archive(path)
    wanted = [entry.as_dict() for entry in memory.timeline().entries]
    home.close()
    file = home.path / "index.db"
    for ending in ("-wal", "-shm"):
        Path(f"{file}{ending}").unlink(missing_ok=True)
    file.unlink()
    if content == "another":
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE other (x)")
        connection.close()
    elif content is not None:
        file.write_bytes(content)
    done = cli("--home", home.path, "timeline", PERSONA, "--json", check=0)
    assert done.json()["entries"] == wanted
    assert again(home).write("还能写").created


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_home(damaged: tuple[Home, Memory, str, str], cli: Cli) -> None:
    home, memory, path, _ = damaged
    folders = [Path(where) for where, _, _ in os.walk(home.path)]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert cli("--home", home.path, "trace", path, check=0).text == TEXT
        for words in (["write", PERSONA], ["archive", path], ["release", "--yes", path]):
            assert str(home.path) in plain(cli("--home", home.path, *words, data=b"x", check=5))
    finally:
        for folder in folders:
            folder.chmod(0o700)
    assert memory.trace(path).content == TEXT


def test_folder_where_a_file_should_be(damaged: tuple[Home, Memory, str, str], cli: Cli) -> None:
    """Works for root, too: a folder stands where gitmem wants to write a file."""
    home, memory, path, _ = damaged
    lock = Path(memory.repository.folder, "gitmem.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()
    before = refs_of(memory)
    for words in (["write", PERSONA], ["archive", path], ["release", "--yes", path]):
        assert "gitmem.lock" in plain(cli("--home", home.path, *words, data=b"x", check=5))
    assert cli("--home", home.path, "trace", path, check=0).text == TEXT
    assert refs_of(memory) == before


def test_damaged_sidecar(damaged: tuple[Home, Memory, str, str], cli: Cli, git: Any) -> None:
    home, memory, path, _ = damaged
    push_files(memory, "D1", {"meta/raw/20260531-115447.yaml": b"state: [\n"})
    done = cli("--home", home.path, "trace", path, check=5)
    assert "meta/raw/20260531-115447.yaml" in plain(done)
    assert "20260531-115447" in cli("--home", home.path, "doctor", check=5).text
    other = f"{PERSONA}/D2/raw/20260531-115448.txt"
    assert cli("--home", home.path, "trace", other, check=0).text == "另一个"
    assert again(home).write("还能写", epoch="D2").created
    released = again(home).release(path)
    assert released.results[0].status == "released"
    git(memory.repository.folder, "fsck", "--full")


def test_archived_text_that_is_gone(damaged: tuple[Home, Memory, str, str], cli: Cli) -> None:
    home, memory, path, blob = damaged
    memory.archive(path)
    object_file(memory, blob).unlink()
    for words in (["trace", path], ["remember", path], ["remember", "--restore", path]):
        assert blob in plain(cli("--home", home.path, *words, check=5))
    entries = cli("--home", home.path, "timeline", PERSONA, "--json", check=0).json()["entries"]
    assert entries[1]["trace_path"] == path


# -- names that plain git lets in -----------------------------------------------------------------

ODD_NAMES = (
    "20260531-115447-a\nb.txt", 'quo"te\'s.txt', "20260531-115447-🌧️.txt", "雨.txt", "-rf.txt", "a b\tc.txt",
    unicodedata.normalize("NFD", "20260531-115447-é.txt"), "20260531-115447.TXT", "back\\slash.txt", "*.txt",
    "20260231-000000.txt", ".hidden.txt", "20260531-115447-" + "a" * 65 + ".txt", "%2e%2e.txt",
    ":(glob)x.txt",
)  # fmt: skip


def push_files(memory: Memory, epoch: str, files: dict[str, bytes]) -> None:
    """Add files to an epoch as a plain git push would where no hook is: any name, no rule."""
    uninstall(memory.repository.folder)
    clone = Path(memory.repository.folder).parent.parent.parent / "clone"
    if not clone.exists():
        run_git(clone.parent, "clone", "-q", memory.repository.folder, str(clone))
    run_git(clone, "fetch", "-q")
    run_git(clone, "checkout", "-q", "-B", epoch, f"origin/{epoch}")
    for name, data in files.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_bytes(data)
    run_git(clone, "add", "-A")
    run_git(clone, "commit", "-q", "-m", "by hand")
    run_git(clone, "push", "-q", "origin", epoch)


@pytest.mark.parametrize("quote", ["true", "false"])
def test_odd_names_by_plain_git_break_nothing(
    damaged: tuple[Home, Memory, str, str], tmp_path: Path, quote: str
) -> None:
    home, memory, path, _ = damaged
    run_git(memory.repository.folder, "config", "core.quotePath", quote)
    files = {f"raw/{name}": f"text of {name!r}".encode() for name in ODD_NAMES}
    files |= {f"meta/raw/{name[:-4]}.yaml": b"tags: [x]\n" for name in ODD_NAMES[:6]}
    files |= {"hldp/不是记录.json": b"{}", "meta/other/x.yaml": b"a: 1\n", "notes/a.md": b"# a\n"}
    push_files(memory, "D1", files)
    late = "20260531-120000-pushed.txt"
    push_files(memory, "D1", {f"raw/{late}": b"pushed"})
    memory = again(home)
    wanted = {path, f"{PERSONA}/D1/raw/{late}", f"{PERSONA}/D2/raw/20260531-115448.txt"}
    assert {entry.trace_path for entry in memory.timeline().entries} == wanted
    assert memory.trace(path).content == TEXT
    memory.write("又一个", epoch="D1", at="2026-06-01T00:00:00")
    memory.archive(f"{PERSONA}/D1/raw/{late}")
    memory.start_epoch("D3")
    maintain(memory)
    check_home(home)
    exported = export(home, tmp_path / "out")
    assert exported.leaves >= 4
    assert (tmp_path / "out" / path).read_bytes().decode() == TEXT
    report = memory.release(path)
    assert [place.name for place in report.places if place.reach is Reach.UNREACHED] == [
        f"export {tmp_path / 'out'}"
    ]
    for name, data in files.items():
        assert run_git(memory.repository.folder, "cat-file", "blob", f"D1:{name}") == data
    run_git(memory.repository.folder, "fsck", "--full")
    (home.path / "index.db").unlink()
    assert {entry.trace_path for entry in again(home).timeline().entries} == (wanted - {path}) | {
        f"{PERSONA}/D1/raw/20260601-000000.txt"
    }


def test_export_of_odd_names_can_be_read_again(
    damaged: tuple[Home, Memory, str, str], tmp_path: Path
) -> None:
    home, memory, path, _ = damaged
    push_files(memory, "D1", {f"raw/{name}": b"x" for name in ODD_NAMES} | {"hldp/x.json": b"{}"})
    again(home)
    exported = export(home, tmp_path / "out")
    assert exported.leaves == 2
    init_from(tmp_path / "copy", tmp_path / "out")
    with Home(tmp_path / "copy") as copy:
        assert copy.persona(PERSONA).trace(path).content == TEXT


def test_odd_names_removed_by_plain_git(damaged: tuple[Home, Memory, str, str], tmp_path: Path) -> None:
    """Files that were there once and were removed with git rm are no leaves either."""
    home, memory, path, _ = damaged
    names = {f"raw/{name}": b"x" for name in ODD_NAMES}
    push_files(memory, "D1", names | {"raw/20260531-130000.txt": b"archived by git rm"})
    clone = Path(memory.repository.folder).parent.parent.parent / "clone"
    run_git(clone, "--literal-pathspecs", "rm", "-q", *names, "raw/20260531-130000.txt")
    run_git(clone, "commit", "-q", "-m", "remove")
    run_git(clone, "push", "-q", "origin", "D1")
    (home.path / "index.db").unlink()
    memory = again(home)
    removed = f"{PERSONA}/D1/raw/20260531-130000.txt"
    assert memory.trace(removed).content == "archived by git rm"
    assert memory.trace(removed).archived_at == "2026-05-31T12:00:00+08:00"
    assert {entry.trace_path for entry in memory.timeline().entries} == {
        path, removed, f"{PERSONA}/D2/raw/20260531-115448.txt",
    }  # fmt: skip
    assert export(home, tmp_path / "out").leaves == 3
    assert memory.release(removed).results[0].status == "released"


def test_leaf_that_is_no_text(damaged: tuple[Home, Memory, str, str], cli: Cli) -> None:
    home, memory, path, _ = damaged
    push_files(memory, "D1", {"raw/20260601-000000.txt": b"\xff\xfe"})
    bad = f"{PERSONA}/D1/raw/20260601-000000.txt"
    assert "UTF-8" in plain(cli("--home", home.path, "trace", bad, check=5))
    assert again(home).trace(path).content == TEXT
    assert len(again(home).timeline().entries) == 3
    assert again(home).release(bad).complete


def test_record_that_is_no_record(damaged: tuple[Home, Memory, str, str], tmp_path: Path) -> None:
    home, memory, path, _ = damaged
    push_files(memory, "D1", {"hldp/mem_pushed01.json": b"not json", "hldp/mem_pushed02.json": b"[1]"})
    memory = again(home)
    bad = f"{PERSONA}/D1/hldp/mem_pushed01.json"
    assert memory.trace(bad).content == "not json"
    listed = {entry.trace_path for entry in memory.timeline().entries}
    assert {path, bad, bad.replace("01", "02", 1)} - listed in (set(), {bad.replace("01", "02", 1)})
    assert path in listed
    assert memory.release(bad).complete


# -- anything ---------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["YM001", "ZY001", "D118", "raw", "hldp", "20260531-115447.txt", "mem_abcd1234.json", "/", ".", "..", "",
     " ", "TRACE.", "REMEMBER.", ".LEAF_TO_ROOT", "-", "_", "main", "\n", "\0", "雨", "\ud800", "é", ".git",
     "%2e", "\\"]
)  # fmt: skip
ANYTHING = st.one_of(
    st.text(), st.lists(PIECES, max_size=14).map("".join), st.lists(PIECES, max_size=7).map("/".join)
)


@settings(max_examples=400, deadline=None)
@given(ANYTHING)
@example("TRACE./")
@example("REMEMBER." + "a." * 2000)
@example("TRACE.a." + "b." * 500 + "/raw/x.LEAF_TO_ROOT")
def test_any_path_parses_or_is_a_usage_error(value: str) -> None:
    try:
        path = TracePath.parse(value)
    except UsageError as fault:
        assert fault.message
        assert "\n" not in fault.message
    else:
        assert path == value
        assert f"{path.persona_name}/{path.epoch}/{path.kind}/{path.name}" == value
        assert ".." not in value
    try:
        sentence = parse_hnl(value)
    except UsageError as fault:
        assert "\n" not in fault.message
    else:
        assert sentence is None or all(TracePath.parse(reading) == reading for reading in sentence.paths)


@settings(max_examples=60, deadline=None)
@given(value=ANYTHING, verb=st.sampled_from(ONE_PATH))
def test_any_path_on_the_command_line(
    value: str, verb: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / "fuzz"
    with Home.init(place) as opened:
        if not opened.personas():
            opened.add_persona(PERSONA).write("x", epoch="D118", at="2020-01-01T00:00:00")
    code = guarded(root, ["--home", str(place), verb, "--", value])
    assert code in (1, 2)


@settings(max_examples=150, deadline=None)
@given(value=ANYTHING, what=st.sampled_from(["at", "epoch", "label", "role", "turn_id", "summary"]))
def test_any_word_is_taken_or_a_usage_error(
    value: str, what: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.getbasetemp() / "words"
    with Home.init(place) as opened:
        memory = opened.persona(PERSONA) if opened.personas() else opened.add_persona(PERSONA)
        try:
            leaf = memory.write("x", **{what: value})
        except GitmemError as fault:
            assert isinstance(fault, UsageError | ConflictError | RefusedError), fault
            assert not isinstance(fault, UnavailableError)
        else:
            assert memory.trace(leaf.trace_path).content == "x"
