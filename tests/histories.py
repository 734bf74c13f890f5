"""Random histories of an epoch, as raw git objects, for property tests of the purge function."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from gitmem.store.objects import (
    TREE_MODE,
    Commit,
    Oid,
    Stage,
    hash_object,
    history,
    parse_tree,
)
from gitmem.tracepath import LeafName

NAMES = [
    "20260531-115447",
    "20260531-115448",
    "20260531-115449-user",
    "20260601-000000",
    "20260601-000000-0002",
]
LEAVES = [LeafName("raw", f"{name}.txt") for name in NAMES]
TEXTS = ["好的", "昨天我们去了北京，看到了故宫。后来下雨了。", "x" * 60, "secret one\r\n", "同一句话"]


def no_object(oid: Oid) -> tuple[str, bytes]:
    raise KeyError(oid.hex())


@dataclass
class History:
    """Commits with merges, signatures, encodings, hand-made sidecars and odd times."""

    seed: int
    stage: Stage = field(default_factory=lambda: Stage(no_object))  # type: ignore[arg-type]
    tip: Oid = b""
    files: dict[Oid, dict[str, bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._clock = 1_780_000_000
        heads = [self._commit({}, [], "root")]
        for number in range(self._random.randint(8, 40)):
            heads = self._grow(heads, number)
        merged: dict[str, bytes] = {}
        for head in heads:
            merged.update(self.files[head])
        self.tip = heads[0] if len(heads) == 1 else self._commit(merged, heads, "join")

    def _grow(self, heads: list[Oid], number: int) -> list[Oid]:
        pick = self._random
        base = pick.choice(heads)
        files = dict(self.files[base])
        for _ in range(pick.choice([0, 1, 1, 2, 3])):
            self._change(files, pick.choice(LEAVES), number)
        parents = [base]
        others = [head for head in heads if head != base]
        if others and pick.random() < 0.3:
            other = pick.choice(others)
            parents.append(other)
            files = {**self.files[other], **files}
        made = self._commit(files, parents, f"msg {number} {pick.choice(NAMES)}")
        kept = [head for head in heads if head not in parents or pick.random() < 0.25]
        return [*kept, made]

    def _change(self, files: dict[str, bytes], leaf: LeafName, number: int) -> None:
        pick = self._random
        match pick.choice(["write", "archive", "wither", "sidecar", "record"]):
            case "write":
                files[leaf.path] = pick.choice(TEXTS).encode()
            case "archive" if leaf.path in files:
                blob = hash_object("blob", files.pop(leaf.path)).hex()
                text = f'state: archived\nblob: "{blob}"\nsummary: s{number}\nsummary_by: extract\n'
                files[leaf.sidecar] = text.encode()
            case "wither":
                files[leaf.path] = "昨天……".encode()
                files[leaf.sidecar] = b"state: withered\n# by hand\n"
            case "sidecar":
                files[leaf.sidecar] = b"tags: [%d]\n" % number
            case _:
                files["hldp/mem_00000001.json"] = b'{"n": %d}\n' % number

    def _commit(self, files: dict[str, bytes], parents: list[Oid], message: str) -> Oid:
        pick = self._random
        self._clock += pick.choice([0, 0, 1, 60])
        headers = [
            f"author 张 <a@x> {self._clock} +0800".encode(),
            f"committer B <b@x> {self._clock + pick.randint(0, 2)} -0330".encode(),
        ]
        if pick.random() < 0.2:
            headers.append(b"encoding UTF-8")
        if pick.random() < 0.2:
            headers.append(b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n abc\n -----END PGP SIGNATURE-----")
        tree = self._tree(files)
        made = self.stage.put(
            "commit", Commit(tree, tuple(parents), tuple(headers), message.encode()).format()
        )
        self.files[made] = files
        return made

    def _tree(self, files: dict[str, bytes]) -> Oid:
        empty = self.stage.put("tree", b"")
        return self.stage.edit(empty, {path: self.stage.put("blob", data) for path, data in files.items()})

    def tombstones(self, leaves: list[LeafName]) -> Oid:
        """The tip after these leaves were released, one commit each."""
        tip = self.tip
        for number, leaf in enumerate(leaves):
            files = dict(self.files[tip])
            files.pop(leaf.path, None)
            files[leaf.sidecar] = b"state: released\nreleased_at: 2026-06-0%dT00:00:00+08:00\n" % (number + 1)
            tip = self._commit(files, [tip], f"release {leaf.path}")
        return tip


def all_files(stage: Stage, tip: Oid) -> dict[Oid, dict[str, Oid]]:
    """Every file of every commit below `tip`."""
    return {oid: dict(_files(stage, commit.tree, "")) for oid, commit in history([tip], stage.read)}


def _files(stage: Stage, tree: Oid, prefix: str) -> list[tuple[str, Oid]]:
    found = []
    for entry in parse_tree(stage.data(tree)):
        name = prefix + entry.name.decode()
        if entry.mode == TREE_MODE:
            found += _files(stage, entry.oid, name + "/")
        else:
            found.append((name, entry.oid))
    return found
