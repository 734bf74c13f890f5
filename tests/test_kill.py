"""kill -9 at every step: what was there stays, what was begun is whole or not there, nothing is left over."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import run_git
from tests.kill import MODES, PERSONA, Killer, secret

REPOSITORY = "ym001/zy001.git"
RUN = 12
_LEFT = re.compile(
    r"gitmem\.ref-|(^|/)refs/.*\.lock$|tmp_object_git2_|tmp_pack_|tmp_idx_|\.new$|gitmem\.purge/.+"
)
_PACK = re.compile(r"(.*/pack-[0-9a-f]{40})\.(pack|keep|idx|rev)$")


@dataclass(frozen=True)
class Verb:
    """Something to be killed in, and the home it begins with."""

    deed: str
    state: str = "loose"
    secrets: tuple[str, ...] = ()
    """Texts of which nothing may be left once it is done."""
    targets: int = 0
    """How many of the prepared leaves it works on."""
    steps: int = 5
    """It has at least so many steps; else the test would look at nothing."""


VERBS = {
    "write": Verb("write"),
    "write_turn": Verb("write_turn", steps=8),
    "record": Verb("record"),
    "archive": Verb("archive", targets=2),
    "wither": Verb("wither", targets=1),
    "forget": Verb("forget", targets=1, steps=20),
    "forget_packed": Verb("forget", "packed", targets=1, steps=20),
    "remember": Verb("remember", "archived packed", targets=1),
    "remember_withered": Verb("remember", "withered", targets=1),
    "release": Verb("release", secrets=("target D1",), targets=1, steps=20),
    "release_packed": Verb("release", "packed", secrets=("target D1",), targets=1, steps=20),
    "release_two_epochs": Verb(
        "release", "archived packed", secrets=("target D1", "target D2"), targets=2, steps=40
    ),
    "import": Verb("import", steps=8),
    "maintain": Verb("maintain", steps=8),
}


def turns_file(folder: Path) -> Path:
    """Six turns of one day, one without an own time."""
    path = folder / "turns.jsonl"
    lines = [
        {
            "id": f"imported-{i}",
            "ts": f"2026-06-09T10:0{i}:00",
            "role": "user",
            "text": secret(f"imported {i}"),
        }
        for i in range(6)
    ]
    del lines[3]["ts"]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), "utf-8")
    return path


@dataclass
class World:
    """A prepared home, and what a verb makes of it when nobody kills it."""

    killer: Killer
    name: str
    verb: Verb
    prepared: Path
    value: Any
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    @classmethod
    def make(cls, killer: Killer, name: str, folder: Path) -> World:
        verb = VERBS[name]
        prepared = folder / "prepared"
        killer.run(prepared, "init")
        targets = killer.run(prepared, "prepare", verb.state)
        value = str(turns_file(folder)) if verb.deed == "import" else targets[: verb.targets]
        world = cls(killer, name, verb, prepared, value)
        world.before = world.traces(prepared)
        done = folder / "done"
        shutil.copytree(prepared, done)
        world.steps = killer.steps(done, verb.deed, value)
        world.after = world.traces(done)
        shutil.rmtree(done)
        return world

    def traces(self, home: Path) -> dict[str, Any]:
        """What each leaf answers."""
        found: dict[str, Any] = self.killer.run(home, "trace", self.killer.run(home, "paths"))
        return found


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    made = Killer(tmp_path / "scratch")
    yield made
    made.close()


def runs(text: str) -> set[bytes]:
    """Every run of 12 bytes in a text."""
    data = text.encode()
    return {data[i : i + RUN] for i in range(len(data) - RUN + 1)}


def holds(data: bytes, wanted: set[bytes]) -> bool:
    """Whether the bytes hold one of the runs."""
    return any(data[i : i + RUN] in wanted for i in range(len(data) - RUN + 1))


def streams(data: bytes) -> Iterator[bytes]:
    """Everything in the bytes that can be inflated, also of a stream that was cut short."""
    for i in range(len(data) - 2):
        if data[i] == 0x78 and (data[i] * 256 + data[i + 1]) % 31 == 0:
            try:
                yield zlib.decompressobj().decompress(data[i:])
            except zlib.error:
                continue


def where_is(home: Path, texts: tuple[str, ...]) -> list[str]:
    """Places of a home that hold 12 bytes of one of the texts: raw, inflated, or as a git object."""
    wanted = set().union(*(runs(secret(text)) for text in texts)) if texts else set()
    found = []
    for folder, _, names in os.walk(home):
        for name in names:
            data = Path(folder, name).read_bytes()
            if holds(data, wanted) or any(holds(stream, wanted) for stream in streams(data)):
                found.append(os.path.relpath(os.path.join(folder, name), home))
    objects = run_git(home / REPOSITORY, "cat-file", "--batch-all-objects", "--batch")
    return found + (["git cat-file"] if holds(objects, wanted) else [])


def leavings(home: Path) -> list[str]:
    """Files that only something unfinished leaves."""
    found = {Path(at, name).relative_to(home).as_posix() for at, _, names in os.walk(home) for name in names}
    packs = {name: match[1] for name in found if (match := _PACK.match(name))}
    halves = [name for name, base in packs.items() if not {f"{base}.pack", f"{base}.idx"} <= found]
    return sorted([name for name in found if _LEFT.search(name)] + halves)


def check_fsck(home: Path) -> None:
    """git finds nothing wrong."""
    assert run_git(home / REPOSITORY, "fsck", "--full", "--strict", "--no-dangling", "--no-progress") == b""


def check_after_kill(world: World, home: Path, step: str, *, read_first: bool) -> list[str]:
    """What must hold after any kill, once the next command has run; files that are left over."""
    check_fsck(home)
    if world.verb.deed == "release" and read_first:  # a reading command is a next command, too
        answers = world.killer.run(home, "trace", world.value)
        gone = tuple(
            text
            for path, text in zip(world.value, world.verb.secrets, strict=True)
            if answers[path]["status"] == "released"
        )
        assert where_is(home, gone) == [], f"after {step}, and a trace"
    text = f"the next command, {world.name}"
    path = world.killer.run(home, "next", text)
    check_fsck(home)
    now = world.killer.run(home, "trace", sorted({*world.before, *world.after, path}))
    assert now.pop(path)["content"] == text
    for leaf, answer in now.items():
        allowed = [world.before.get(leaf), world.after.get(leaf)]
        fine = answer in allowed or (answer["status"] == "not_found" and None in allowed)
        assert fine, f"{leaf} is neither as before nor as after: {answer}, after {step}"
    if world.verb.deed == "write_turn":
        new = [now[leaf]["status"] for leaf in now if leaf not in world.before]
        assert len(set(new)) == 1, f"half a turn after {step}"
    left = leavings(home)
    gone = tuple(
        text
        for leaf, text in zip(world.value, world.verb.secrets, strict=False)
        if now[leaf]["status"] == "released"
    )
    assert where_is(home, gone) == [], f"released text is left after {step}"
    timeline = {entry["trace_path"]: entry["status"] for entry in world.killer.run(home, "timeline")}
    living = {leaf: a["status"] for leaf, a in now.items() if a["status"] not in ("not_found", "released")}
    assert timeline == living | {path: "active"}, f"the timeline lags behind after {step}"
    return left


def check_again(world: World, home: Path, step: str) -> None:
    """The same command, given again after the kill, comes to its end and to the same answers."""
    undone = [path for path in world.before if world.before[path] != world.after[path]]
    now = world.killer.run(home, "trace", sorted(world.after))
    done = all(now[path] == world.after[path] for path in undone) and bool(undone)
    new = [path for path in world.after if path not in world.before]
    if world.verb.deed in ("write", "record") and now[new[0]]["status"] != "not_found":
        return
    if done and world.verb.deed in ("archive", "wither", "forget"):
        return
    value = [path for path in world.value if now[path] != world.after[path]] if undone else world.value
    world.killer.run(home, world.verb.deed, value or world.value)
    now = world.killer.run(home, "trace", sorted(world.after))
    assert now == world.after, f"the same again after {step}"
    assert where_is(home, world.verb.secrets) == []
    check_fsck(home)


def check_release(world: World, home: Path, step: str) -> None:
    """Whatever was killed, a release afterwards leaves nothing of a leaf anywhere."""
    if world.verb.deed == "release":
        return
    leaves = {"target D1": f"{PERSONA}/D1/raw/20260607-090000.txt"}
    if world.verb.deed == "import":
        leaves["imported 0"] = f"{PERSONA}/D9/raw/20260609-100000.txt"
    world.killer.run(home, "release", list(leaves.values()))
    assert where_is(home, tuple(leaves)) == [], f"a later release left text, after {step}"
    check_fsck(home)


def attempt(world: World, folder: Path, at: int, mode: str) -> str | None:
    """Kill one child at one step and check everything: "" or what is wrong; None if it was not killed."""
    home = folder / "trial"
    shutil.copytree(world.prepared, home)
    step: str | None = "not killed"
    try:
        step = world.killer.kill(home, world.verb.deed, world.value, at, mode)
        if step is None:
            return None
        left = check_after_kill(world, home, step, read_first=at % 2 == 0)
        check_again(world, home, step)
        check_release(world, home, step)
    except AssertionError as fault:
        return f"{step}: {str(fault)[:600]}"
    finally:
        shutil.rmtree(home)
    return f"{step}: left over: {left}" if left else ""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", VERBS)
def test_kill_at_every_step(name: str, mode: str, killer: Killer, tmp_path: Path) -> None:
    world = World.make(killer, name, tmp_path)
    assert world.before != world.after or name == "maintain"
    wrong: list[str] = []
    at = 1
    while (fault := attempt(world, tmp_path, at, mode)) is not None:
        wrong += [fault] if fault else []
        # Before each step without exception; after and in the middle of every third.
        at += 1 if mode == "before" else 3
    assert at > world.verb.steps, f"{name} was killed in {at - 1} steps only"
    assert not wrong, f"{len(wrong)} of {at - 1} kills:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", ["write", "archive", "forget", "release_packed", "import", "maintain"])
def test_kill_at_some_steps(name: str, killer: Killer, tmp_path: Path) -> None:
    """Somewhere in the first half and the second, in mid-work, and before the last file gets its name."""
    world = World.make(killer, name, tmp_path)
    total = len(world.steps)
    chosen = [(round(0.3 * total), "before"), (round(0.55 * total), "after"), (round(0.75 * total), "torn")]
    renames = [int(step.split()[0]) for step in world.steps if "tmp_idx_gitmem" in step and "rename" in step]
    faults = [attempt(world, tmp_path, at, mode) for at, mode in chosen + [(at, "before") for at in renames]]
    assert faults == [""] * len(faults)


@pytest.mark.parametrize("when", ["write", "release", "maintain"])
def test_lock_of_a_killed_git_is_named(
    when: str, killer: Killer, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    """git killed while it packs refs leaves packed-refs.lock: reading goes on, and the lock is named."""
    world = World.make(killer, "release", tmp_path)
    lock = world.prepared / REPOSITORY / "packed-refs.lock"
    lock.write_bytes(b"")
    target = world.value[0]
    text = secret("target D1")
    if when == "write":
        assert killer.run(world.prepared, "next", "goes on").endswith("-next.txt")
    elif when == "maintain":
        done = cli("--home", world.prepared, "maintain")
        assert done.code in (0, 5)
        assert done.code == 0 or "packed-refs.lock" in done.err
    else:
        done = cli("--home", world.prepared, "release", "--yes", target)
        assert done.code == 0 or (done.code == 5 and "packed-refs.lock" in done.err), done.err
    other = next(path for path in world.before if path != target)
    assert killer.run(world.prepared, "trace", [other]) == {other: world.before[other]}
    lock.unlink()
    killer.run(world.prepared, "next", "after it was removed")
    if when == "release":
        assert killer.run(world.prepared, "trace", [target])[target]["status"] == "released"
        assert where_is(world.prepared, ("target D1",)) == []
    else:
        assert killer.run(world.prepared, "trace", [target])[target]["content"] == text
    check_fsck(world.prepared)


def test_the_search_for_leavings_finds_them(killer: Killer, tmp_path: Path) -> None:
    """The checks above can fail: they find a text in a loose object, in a pack, raw, and files left over."""
    world = World.make(killer, "release", tmp_path)
    home = world.prepared
    assert any("objects/" in place for place in where_is(home, ("target D1",)))
    assert "git cat-file" in where_is(home, ("target D1",))
    run_git(home / REPOSITORY, "repack", "-a", "-d", "-q")
    assert any(place.endswith(".pack") for place in where_is(home, ("target D1",)))
    (home / "note").write_text(secret("elsewhere")[70:85], "utf-8")
    assert where_is(home, ("elsewhere",)) == ["note"]
    assert where_is(home, ("never written",)) == []
    for name in (
        "gitmem.ref-1-ab",
        "refs/heads/D1.lock",
        "objects/tmp_object_git2_ab",
        "gitmem.purge/D1.json",
        f"objects/pack/pack-{'0' * 40}.pack",
    ):
        (home / REPOSITORY / name).parent.mkdir(exist_ok=True)
        (home / REPOSITORY / name).write_bytes(b"")
    assert len(leavings(home)) == 5
    assert PERSONA in world.value[0]
