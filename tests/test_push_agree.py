"""The library and the hook agree: what one takes, the other takes; what one refuses, the other refuses.

Each change is made twice from the same repository: by `Memory`, and by a commit of the same files
that is pushed with plain git to a copy. Then the library's own commits are pushed to a third copy,
which must take them all. What only one side can say (a name left to gitmem, a tombstone for a leaf
that never was) is not asked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pygit2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitmem import Home, Memory, fade
from gitmem import sidecar as sidecars
from gitmem.errors import GitmemError, UnavailableError
from gitmem.sidecar import Sidecar
from gitmem.states import State
from gitmem.store.objects import hash_object
from gitmem.tracepath import LeafName
from tests.conftest import START, FakeClock

EPOCH = "D1"
PERSONA = "YM001/ZY001"
WHEN = "2026-06-03T04:00:00+08:00"
TEXT = "第一句话。第二句话说得长一些。第三句。第四句结尾。\n"
NAMES = [f"raw/20260601-08000{number}.txt" for number in range(8)]
RECORDS = [f"hldp/mem_record{number:02}.json" for number in range(3)]
Files = dict[str, bytes | None]


@dataclass
class World:
    """A folder with a home; copies are made of it for each side."""

    prepared: Path
    scratch: Path

    @contextmanager
    def copy(self, name: str) -> Iterator[Path]:
        """A copy of the home, for one change."""
        folder = self.scratch / name
        shutil.copytree(self.prepared, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def repository(home: Path) -> Path:
    return home / "ym001/zy001.git"


def prepare(home: Path) -> None:
    """Leaves in every state."""
    with Home.init(home, clock=FakeClock(START + timedelta(days=9))) as made:
        memory = made.add_persona(PERSONA, timezone="Asia/Shanghai", human="冰朔")
        for number in range(len(NAMES)):
            at = f"2026-06-01T08:00:0{number}+08:00"
            memory.write(f"{number}：{TEXT}", epoch=EPOCH, at=at, turn_id=f"t-{number}", role="user")
        for path in RECORDS:
            memory.record({"题": path}, epoch=EPOCH, id=Path(path).stem, at="2026-06-01T09:00:00+08:00")
        own = [f"{PERSONA}/{EPOCH}/{path}" for path in (*NAMES, *RECORDS)]
        memory.archive(own[1], own[6], own[8])
        memory.wither(own[2])
        memory.wither(own[3], forget_original=True)
        memory.release(own[4])
        memory.release(own[9])
        memory.wither(own[5])
        memory.archive(own[5])
        memory.write("另一个纪元。", epoch="D2", at="2026-06-01T08:00:07+08:00")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("agree")
    prepare(folder / "prepared")
    return World(folder / "prepared", folder)


# -- a change, as each side makes it ----------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """What is asked for."""

    verb: str
    path: str = ""
    value: Any = None

    def by_library(self, memory: Memory) -> None:
        own = f"{PERSONA}/{EPOCH}/{self.path}"
        verbs: dict[str, Callable[[], Any]] = {
            "archive": lambda: memory.archive(own),
            "wither": lambda: memory.wither(own, self.value),
            "forget": lambda: memory.wither(own, self.value, forget_original=True),
            "release": lambda: memory.release(own),
            "restore": lambda: memory.remember(own, restore=True),
            "show": lambda: memory.set_visible(own, self.value),
            "write": lambda: memory.write(
                self.value[0],
                epoch=EPOCH,
                at="2026-06-05T08:00:00+08:00",
                tags=self.value[1].get("tags", ()),
                summary=self.value[1].get("summary"),
                turn_id=self.value[1].get("turn_id"),
                role=self.value[1].get("role"),
            ),
            "record": lambda: memory.record(
                {"题": 1}, epoch=EPOCH, id=self.value, at="2026-06-05T08:00:00+08:00"
            ),
            "epoch": lambda: memory.write("新纪元", epoch=self.value, at="2026-06-05T08:00:00+08:00"),
        }
        verbs[self.verb]()

    def files(self, memory: Memory) -> Files:
        """The files that a person who knows no rules would commit for it."""
        if self.verb == "write":
            name, (text, fields) = "20260605-080000", self.value
            made: Files = {f"raw/{name}.txt": text}
            if fields:
                made[f"meta/raw/{name}.yaml"] = json.dumps(fields, ensure_ascii=False).encode()
            return made
        if self.verb == "record":
            return {f"hldp/{self.value}.json": json.dumps({"id": self.value, "hldp": 1}).encode()}
        if self.verb == "epoch":
            return {"raw/20260605-080000.txt": "新纪元".encode()}
        kind, _, name = self.path.partition("/")
        return self._on_leaf(memory, LeafName(kind, name))

    def _on_leaf(self, memory: Memory, leaf: LeafName) -> Files:
        view = memory.repository.view(EPOCH)
        assert view is not None
        shown, old = view.leaf(leaf), view.sidecar(leaf) or Sidecar()
        text = view.blob(shown) if shown else None
        full = old.blob or (shown.hex() if shown else None)
        new: Sidecar | bytes
        if self.verb == "archive":
            text, new = None, replace(old, state=State.ARCHIVED, blob=None if old.forgotten else full)
        elif self.verb in ("wither", "forget"):
            forget = self.verb == "forget"
            sharp = text or self._full(memory, old)
            try:
                text = fade.blur(sharp.decode(), self.value).encode()
            except GitmemError:
                text = "……".encode()
            if forget and old.state is State.WITHERED:
                text = sharp
            blur = hash_object("blob", text).hex()
            new = replace(
                old,
                state=State.WITHERED,
                forgotten=forget or old.forgotten,
                blob=None if forget else full,
                blur=blur if forget else old.blur,
            )
        elif self.verb == "release":
            text, new = None, sidecars.tombstone(old, WHEN)
        elif self.verb == "restore":
            if old.blob:
                text = memory.repository.blob(bytes.fromhex(old.blob))
            new = replace(old, state=State.ACTIVE, blob=None, forgotten=False, blur=None)
        else:
            assert self.verb == "show"
            new = replace(old, human_visible=self.value)
        sidecar = new if isinstance(new, bytes) else sidecars.dump(new)
        return {leaf.path: text, leaf.sidecar: sidecar}

    def _full(self, memory: Memory, old: Sidecar) -> bytes:
        return memory.repository.blob(bytes.fromhex(old.full_text)) if old.full_text else TEXT.encode()


# -- the two sides ----------------------------------------------------------------------------


def library_takes(change: Change, home: Path) -> tuple[bool, str]:
    with Home(home, clock=FakeClock(START + timedelta(days=10))) as opened:
        try:
            change.by_library(opened.persona(PERSONA))
        except UnavailableError:
            raise
        except GitmemError as fault:
            return False, f"{type(fault).__name__}: {fault}"
    return True, ""


def commit(store: pygit2.Repository, tip: str | None, files: Files) -> str:
    """A commit of files on a commit, without any check; None removes a file."""
    index = pygit2.Index()
    if tip is not None:
        index.read_tree(store[tip].peel(pygit2.Tree))
    for path, data in files.items():
        if data is None:
            if path in index:
                index.remove(path)
            continue
        index.add(pygit2.IndexEntry(path, store.create_blob(data), pygit2.enums.FileMode.BLOB))
    tree = index.write_tree(store)
    who = pygit2.Signature("Test", "test@example.invalid", 1780500000, 480)
    return str(store.create_commit(None, who, who, "a change\n", tree, [tip] if tip else []))


def push(folder: Path, store: Path, *specs: str) -> tuple[bool, str]:
    done = subprocess.run(
        ["git", "push", "-q", str(folder), *specs], cwd=store, capture_output=True, timeout=60, check=False
    )
    return done.returncode == 0, done.stderr.decode("utf-8", "replace")


def hook_takes(change: Change, home: Path, scratch: Path) -> tuple[bool, str]:
    target = repository(home)
    with Home(home, clock=FakeClock(START + timedelta(days=10))) as opened:
        files = change.files(opened.persona(PERSONA))
    store = scratch / "store"
    made = pygit2.init_repository(str(store), bare=True)
    (store / "objects/info/alternates").write_text(f"{target}/objects\n")
    made = pygit2.Repository(str(store))
    old = subprocess.run(
        ["git", "rev-parse", f"refs/heads/{EPOCH}"], cwd=target, capture_output=True, check=True, text=True
    ).stdout.strip()
    try:
        branch, base = (change.value, None) if change.verb == "epoch" else (EPOCH, old)
        new = commit(made, base, files)
        return push(target, store, f"{new}:refs/heads/{branch}")
    finally:
        shutil.rmtree(store)


def check(world: World, change: Change) -> None:
    with world.copy("library") as home:
        taken, why = library_takes(change, home)
        if taken and change.verb not in _REWRITES:
            with world.copy("third") as third:
                fine, said = push(repository(third), repository(home), "--all")
                assert fine, f"{change}: the hook refuses what the library wrote: {said}"
    with world.copy("hook") as home:
        pushed, said = hook_takes(change, home, world.scratch)
    assert pushed == taken, f"{change}: the library says {why or 'yes'}; the hook says {said or 'yes'}"


# -- what is tried ----------------------------------------------------------------------------

# What a leaf is already. Asked for it again, the library says so or has nothing to do; a commit of the
# same files changes nothing, or a date.
_IS_SO = {
    *(("archive", path) for path in (NAMES[1], NAMES[5], NAMES[6], RECORDS[0])),
    *(("wither", path) for path in (NAMES[2], NAMES[3])),
    ("forget", NAMES[3]),
    *(("release", path) for path in (NAMES[4], RECORDS[1])),
    *(("restore", path) for path in (NAMES[0], NAMES[7], RECORDS[2])),
}
# Two homes may come to it: one archives, the other forgets the original. The hook lets a sync say so.
_BY_SYNC = {("forget", path) for path in (NAMES[1], NAMES[5], NAMES[6])}
_REWRITES = ("forget", "release")
LEAVES = [*NAMES, *RECORDS]
ON_LEAVES = [
    Change(verb, path, value)
    for path in LEAVES
    for verb, value in (
        ("archive", None),
        ("wither", 0.4),
        ("forget", 0.4),
        ("release", None),
        ("restore", None),
        ("show", True),
    )
    if (verb, path) not in _IS_SO | _BY_SYNC and not (verb == "show" and path in NAMES)
]


@pytest.mark.parametrize("path", LEAVES)
def test_every_verb_on_every_state(world: World, path: str) -> None:
    wrong = []
    for change in ON_LEAVES:
        if change.path == path:
            try:
                check(world, change)
            except AssertionError as fault:
                wrong.append(str(fault))
    assert not wrong, "\n".join(wrong)


def test_a_raw_text_is_not_shown_to_humans(world: World) -> None:
    check(world, Change("show", NAMES[0], True))


BAD_FIELDS = [
    {"turn_id": ""},
    {"turn_id": "x" * 201},
    {"turn_id": "t-new", "role": "a\nb"},
    {"turn_id": "t-new", "role": "x" * 65},
    {"tags": ["a\nb"]},
    {"tags": ["x" * 65]},
    {"tags": [""]},
    {"summary": "x" * 2001},
    {"summary": "a\0b"},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=lambda fields: json.dumps(fields)[:30])
def test_words_of_a_sidecar(world: World, fields: dict[str, Any]) -> None:
    check(world, Change("write", "", ("雨".encode(), fields)))


WORDS = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=64) | st.sampled_from(
    ["雨", "x" * 64, "é", "off", "0", "null"]
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.lists(WORDS, max_size=3),
        "summary": st.sampled_from(["短", "x" * 2000, "a\nb"]),
        "turn_id": WORDS | st.sampled_from(["t-0", "new", "x" * 200]),
        "role": WORDS | st.sampled_from(["user", "companion"]),
    },
)
TEXTS = st.binary(max_size=8) | st.sampled_from(
    [b"", b"\0", "雨".encode(), b"\xff", b"\xef\xbb\xbf", b"a\r\nb", b"x" * (1 << 20), b"x" * ((1 << 20) + 1)]
)
IDS = st.sampled_from([Path(path).stem for path in RECORDS] + ["mem_new00000", "mem_", "mem_ABCDEFGH", "x"])
EPOCHS = st.sampled_from(["D2", "d2", "D3", "MAIN", "a/b", "x" * 33, "雨", "D.lock", "HEAD", "-x", "D 4"])
CHANGES = (
    st.builds(lambda text, fields: Change("write", "", (text, fields)), TEXTS, FIELDS)
    | st.builds(lambda name: Change("record", "", name), IDS)
    | st.builds(lambda path, keep: Change("wither", path, keep), st.sampled_from(NAMES), st.floats(0, 1))
)


def tries(count: int) -> Any:
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.mark.timeout(300)
@given(CHANGES)
@tries(25)
def test_changes_made_up(world: World, change: Change) -> None:
    check(world, change)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(CHANGES)
@tries(200)
def test_many_changes_made_up(world: World, change: Change) -> None:
    check(world, change)


@pytest.mark.parametrize("name", ["D3", "d2", "MAIN", "a/b", "x" * 33, "雨", "D.lock", "HEAD", "D 4"])
def test_names_of_epochs(world: World, name: str) -> None:
    check(world, Change("epoch", "", name))


def test_the_comparison_can_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one side is blind, it is seen."""
    monkeypatch.setattr(Change, "files", lambda self, memory: {"x": b"y"})
    with pytest.raises(AssertionError, match="the hook says"):
        check(world, Change("archive", NAMES[0]))
    assert os.listdir(world.scratch) == ["prepared"]
