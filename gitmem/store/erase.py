"""Carrying out a purge: move the branch, delete exactly what only the old history held, prove it.

The order makes a kill harmless at any point. A journal is written before anything is changed and
dropped last; whoever next takes the repository's lock finds it and goes on. What may be deleted
is computed from full lists on both sides:

    doomed = objects of the old tips − objects of the new tips − objects of every other ref

and never by `git prune` or `rev-list --not`, which list objects that are still in use.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from gitmem import host
from gitmem.errors import CorruptError, UnavailableError
from gitmem.report import Place, Reach
from gitmem.store import epochpack, pack, verify, worktrees
from gitmem.store import objects as git
from gitmem.store.epochpack import Inventory, Needed
from gitmem.store.objects import Oid
from gitmem.store.purge import Rewrite, Victims, find_victims
from gitmem.store.quiet import busy, quiet
from gitmem.store.refs import HEADS, StaleRefError
from gitmem.store.repository import JOURNALS, MAIN, Repository
from gitmem.tracepath import LeafName

PURGED = "gitmem.purged"
_MOVABLE = ("refs/heads/", "refs/tags/", "refs/pull/", "refs/remotes/")
_NOTES = "refs/notes/"
_DERIVED = ("objects/pack/multi-pack-index", "objects/info/commit-graph")
_HEADS = ("FETCH_HEAD", "ORIG_HEAD")
"""Left where a person works: there they were mapped before."""
_ROUNDS = 5
_BIG = 4000
_FEW = 8


@dataclass(slots=True)
class Journal:
    """What a purge under way must not forget, should it be killed."""

    path: str
    old: set[Oid] = field(default_factory=set)
    """Tips whose history may hold what is purged."""
    doomed: set[Oid] = field(default_factory=set)
    packs: list[str] = field(default_factory=list)
    """Packs being removed, whatever of them is left."""
    staged: set[Oid] = field(default_factory=set)
    """Blobs that the index of a worktree held in the place of a leaf."""

    @classmethod
    def load(cls, repository: Repository, epoch: str) -> Journal:
        """The journal of an epoch, empty where no purge is under way."""
        path = f"{repository.folder}/{JOURNALS}/{epoch}.json"
        data = host.read_bytes(path)
        if data is None:
            return cls(path)
        try:
            raw = json.loads(data)
            staged = _ids(raw.get("staged", ()))
            return cls(path, _ids(raw["old"]), _ids(raw["doomed"]), list(raw["packs"]), staged)
        except (ValueError, KeyError, TypeError):
            raise CorruptError(f"the journal {path} is damaged.", hint="Run gitmem release again.") from None

    def save(self) -> None:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        raw = {"old": _hex(self.old), "doomed": _hex(self.doomed), "packs": self.packs}
        raw |= {"staged": _hex(self.staged)} if self.staged else {}
        host.write_durable(self.path, json.dumps(raw).encode())

    def drop(self) -> None:
        host.remove(self.path)


def _ids(names: Iterable[str]) -> set[Oid]:
    return {bytes.fromhex(name) for name in names}


def _hex(ids: Iterable[Oid]) -> list[str]:
    return sorted(oid.hex() for oid in ids)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a purge of one epoch did."""

    tip: Oid
    deleted: int = 0
    places: tuple[Place, ...] = ()
    notes: tuple[str, ...] = ()


def begin(repository: Repository, epoch: str) -> None:
    """Promise a purge of the epoch. Call under the lock, before the tombstone is committed."""
    Journal.load(repository, epoch).save()


def purged_commits(repository: Repository) -> set[Oid]:
    """Commits that this repository has purged and that must never return."""
    lines = (host.read_bytes(f"{repository.folder}/{PURGED}") or b"").decode("ascii", "replace").split()
    return _ids(line for line in lines if len(line) == 40)


def pending(repository: Repository) -> list[str]:
    """Epochs with a purge under way."""
    names = host.list_folder(f"{repository.folder}/{JOURNALS}")
    return [name.removesuffix(".json") for name in names if name.endswith(".json")]


def resume(repository: Repository) -> None:
    """Go on with purges that were cut short. Call under the lock; waits for nobody.

    While a push is in flight its purge may be promised and its tombstone not there yet: it waits.
    """
    if busy(repository.folder, f"{repository.folder}/gc.pid"):
        return
    for epoch in pending(repository):
        if repository.refs.head(epoch) is None:
            Journal.load(repository, epoch).drop()
        else:
            purge_epoch(repository, epoch, wait_seconds=0)


def purge_epoch(
    repository: Repository, epoch: str, wait_seconds: float = 30, *, ref: str | None = None
) -> Outcome:
    """Bring an epoch's history in line with its tombstones, and delete what it no longer holds.

    Call under the lock. Does nothing, quickly, where the history is already in line; not so in a
    working copy, which names the `ref` that has the tombstones: there the rest is looked into as well.

    Raises:
        CorruptError: an object cannot be read; then nothing is deleted.
    """
    with quiet(repository.folder, wait_seconds) as running:
        for _ in range(_ROUNDS):
            try:
                return _Purge(repository, epoch, ref).run(running)
            except StaleRefError:
                continue
    raise CorruptError(f"{epoch} kept moving during the purge.", hint="Run the command again.")


class _Purge:
    """One attempt. Fields are filled in the order of the steps."""

    def __init__(self, repository: Repository, epoch: str, ref: str | None) -> None:
        self.repository = repository
        self.epoch = epoch
        self.ref = ref or HEADS + epoch
        self.thorough = ref is not None
        self.journal = Journal.load(repository, epoch)
        self.read = repository.reader()
        self.notes: list[str] = []
        self.places: list[Place] = []
        self.inventory: Inventory

    def run(self, running: str) -> Outcome:
        _clear_temporary(self.repository, self.journal, alone=not running)
        refs = self.repository.refs.all()
        tip = refs[self.ref]
        victims = find_victims(self.read, tip)
        rewrite = Rewrite(self.read, victims)
        rewrite.run([tip])
        new = rewrite.commits[tip]
        self._map_old_tips(rewrite)
        resumed = self.thorough or bool(self.journal.old or self.journal.doomed)
        if new == tip and not resumed and not self.repository.stray_ids():
            self.journal.drop()
            return Outcome(tip, 0, (Place(f"git objects of {self.epoch}", Reach.NOT_PRESENT),))
        self.journal.old |= {tip} - {new}
        self.journal.save()
        inventory = self.inventory = Inventory(self.repository)
        moves, drops = self._other_refs(refs, rewrite, inventory)
        written = self._write(rewrite, {self.ref: new} | moves) if new != tip or moves else None
        try:
            after = {name: oid for name, oid in refs.items() if name not in drops} | {self.ref: new} | moves
            known = pack.pack_ids(written) if written and not _is_big(rewrite) else set()
            dropped: set[Oid] = set()
            git.reachable_from([refs[name] for name in drops], self.read, dropped)
            doomed = self._doomed(victims, after, known, inventory, dropped)
            self.journal.doomed |= doomed
            self.journal.save()
            if new != tip:
                self.repository.refs.update(self.ref, new, tip)
        except BaseException:
            if written:
                pack.remove_pack(written)
            raise
        self._move_others(refs, moves, drops)
        self._note_purged(rewrite)
        if running:
            self.repository.bump_generation()
            command = f"gitmem doctor --fix (when {running} has ended)"
            self.places.append(Place("git objects", Reach.UNREACHED, f"{running} is using them", command))
            return Outcome(new, 0, tuple(self.places), tuple(self.notes))
        return self._delete(new, written)

    # -- what changes ------------------------------------------------------------------------

    def _other_refs(
        self, refs: Mapping[str, Oid], rewrite: Rewrite, inventory: Inventory
    ) -> tuple[dict[str, Oid], list[str]]:
        """Refs that share the old history: where to move them, and which to drop."""
        changed = {old for old, new in rewrite.commits.items() if old != new} | self.journal.old
        moves: dict[str, Oid] = {}
        drops: list[str] = []
        heads = {name[len(HEADS) :]: oid for name, oid in refs.items() if name.startswith(HEADS)}
        closed = [inventory.packs[base] for base in inventory.closed(heads, self.read, without=[self.epoch])]
        apart = Needed(ids for ids in closed if not ids & changed)
        for name, oid in refs.items():
            if name in (self.ref, HEADS + MAIN) or not changed or oid in apart:
                continue
            kind, _ = self.read(oid)
            if name.startswith(_NOTES):
                shares = bool(changed & _noted(oid, self.read))
            else:
                shares = bool(changed & git.commits_of(oid, self.read))
            if not shares:
                continue
            if kind == "commit" and name.startswith(_MOVABLE):
                rewrite.run([oid])
                moves[name] = rewrite.commits[oid]
            else:
                drops.append(name)
        return moves, drops

    def _map_old_tips(self, rewrite: Rewrite) -> None:
        """Learn which commits an earlier, killed attempt had rewritten, as far as they still exist."""
        for old in self.journal.old:
            try:
                rewrite.run([old])
            except CorruptError:
                if not self.journal.doomed:
                    raise

    def _write(self, rewrite: Rewrite, tips: Mapping[str, Oid]) -> str:
        named = {name.removeprefix(HEADS): oid for name, oid in tips.items()}
        if _is_big(rewrite):
            # Only what changed: writing all trees of so long an epoch anew would take minutes.
            same = {old for old, new in rewrite.commits.items() if old == new}
            return epochpack.write_epochs(
                self.repository, named, rewrite.stage.read, closed=False, without=same
            )
        alone = tips.keys() == {self.ref}
        return epochpack.write_epochs(self.repository, named, rewrite.stage.read, closed=alone)

    def _doomed(
        self,
        victims: Victims,
        refs: Mapping[str, Oid],
        known: set[Oid],
        inventory: Inventory,
        dropped: set[Oid],
    ) -> set[Oid]:
        """What the store holds and no ref of `refs` needs, as far as this purge answers for it.

        `known` are objects of a pack just written: all that the rewritten refs need; `dropped`
        are those of refs that go.
        """
        heads = {name[len(HEADS) :]: oid for name, oid in refs.items() if name.startswith(HEADS)}
        closed = inventory.closed(heads, self.read, without=[self.epoch])
        needed = Needed((inventory.packs[base] for base in closed), known)
        git.reachable_from(refs.values(), self.read, needed)
        worktrees.add_needed(self.repository.folder, refs, self.read, needed)
        self._spare_others(needed)
        unneeded = {oid for oid in inventory.outside(closed) if oid not in needed}
        sure = self.journal.doomed | self.journal.staged | dropped
        sure |= self._old_objects(needed) | self.repository.stray_ids()
        working = worktrees.is_working(self.repository.folder)
        texts = _texts(unneeded, self.read, victims) if working else []
        return (sure & unneeded) | _tainted(unneeded - sure, self.read, victims, texts)

    def _spare_others(self, needed: Needed) -> None:
        """What the purges of other epochs still have to read; it is theirs to delete."""
        for epoch in pending(self.repository):
            for tip in Journal.load(self.repository, epoch).old if epoch != self.epoch else ():
                with contextlib.suppress(CorruptError):  # that purge has begun to delete
                    git.reachable([tip], self.read, needed)

    def _old_objects(self, needed: Needed) -> set[Oid]:
        """What the old tips lead to and `needed` does not have."""
        found = Needed([needed])
        for tip in self.journal.old:
            try:
                git.reachable([tip], self.read, found)
            except CorruptError:
                # A resumed purge meets a history that is partly gone; then the journal has the list.
                if not self.journal.doomed:
                    raise
        return set(found)

    def _move_others(self, refs: Mapping[str, Oid], moves: Mapping[str, Oid], drops: Iterable[str]) -> None:
        for name, oid in moves.items():
            self.repository.refs.update(name, oid, refs[name])
            self.notes.append(f"{name} was moved to the rewritten history.")
        for name in drops:
            self.repository.refs.delete(name)
            self.notes.append(f"{name} held the old history and was removed.")

    def _note_purged(self, rewrite: Rewrite) -> None:
        old = {old for old, new in rewrite.commits.items() if old != new}
        if old:
            lines = b"".join(oid.hex().encode() + b"\n" for oid in sorted(old))
            host.append_durable(f"{self.repository.folder}/{PURGED}", lines)

    # -- what goes away ----------------------------------------------------------------------

    def _delete(self, new: Oid, written: str | None) -> Outcome:
        doomed = self.journal.doomed
        folder = self.repository.folder
        dropped_logs = _drop_logs(folder, doomed)
        if dropped_logs:
            self.notes.append(f"reflogs removed: {', '.join(dropped_logs)}.")
        for _ in range(_ROUNDS):
            _delete_loose(self.repository, doomed)
            self._delete_packs()
            _delete_derived(folder, doomed)
            self.inventory.refresh()
            left = verify.remaining(self.repository.objects, doomed)
            # A pack that appeared while the store was read is looked into as well.
            if not left and not self.inventory.refresh():
                break
        if written:
            epochpack.drop_loose_doubles(self.repository, written)
            verify.check_pack(written)
        self.repository.bump_generation()
        self._report(doomed, left)
        if not left:
            self.repository.clear_strays()
            self.journal.drop()
        return Outcome(new, len(doomed) - len(left), tuple(self.places), tuple(self.notes))

    def _delete_packs(self) -> None:
        """Rewrite packs that hold doomed objects without those, then remove the old ones."""
        inventory = self.inventory
        inventory.refresh()
        bad = [base for base, ids in inventory.packs.items() if ids & self.journal.doomed]
        safe: set[Oid] = set().union(*(ids for base, ids in inventory.packs.items() if base not in bad))
        for base in bad:
            noted = {name: oid for name, oid in inventory.keeps[base].items() if name != self.epoch}
            kept = inventory.packs[base] - self.journal.doomed
            if noted:  # other whole epochs live in it: it must stay closed
                rest = kept - safe
                kept = git.reachable(noted.values(), self.read)
                epochpack.repack(self.repository, kept, epochpack.keep_note(noted))
                # Where the epoch came purged, what it still needs may stand in this pack alone.
                epochpack.repack(self.repository, rest - kept)
                kept |= rest
            else:
                epochpack.repack(self.repository, kept - safe)
            safe |= kept
            self.journal.packs.append(os.path.basename(base))
            self.journal.save()
            pack.remove_pack(base)

    def _report(self, doomed: set[Oid], left: set[Oid]) -> None:
        where = f"git objects of {self.epoch}"
        if left:
            command = f"gitmem doctor --fix (on {self.repository.folder})"
            self.places.insert(0, Place(where, Reach.UNREACHED, f"{len(left)} objects remain", command))
        else:
            self.places.insert(
                0, Place(where, Reach.PURGED, f"{len(doomed)} objects deleted, proved by dulwich")
            )
        for path in alternates(self.repository.objects):
            self.places.append(_look_into_alternate(path, doomed))
        for name in host.list_folder(self.repository.objects):
            if name.startswith(("tmp_objdir", "incoming")):
                detail = "data of a push that has not ended"
                path = f"{self.repository.objects}/{name}"
                self.places.append(
                    Place(path, Reach.UNREACHED, detail, f"rm -r '{path}' (when no push is running)")
                )


def _is_big(rewrite: Rewrite) -> bool:
    """Whether an epoch is so long that its unchanged beginning should be left where it is."""
    return len(rewrite.commits) > _BIG


def _noted(ref: Oid, read: git.Read) -> set[Oid]:
    """Objects that a notes ref speaks about, in all its history."""
    found: set[Oid] = set()
    for item in git.items([ref], read):
        name = item.path.replace(b"/", b"")
        if item.kind == "blob" and len(name) == 40:
            try:
                found.add(bytes.fromhex(name.decode("ascii")))
            except ValueError:
                continue
    return found


def _names_of(victims: Victims) -> set[bytes]:
    leaves = victims.released | victims.forgotten.keys()
    return {leaf.name.encode() for leaf in leaves} | {leaf.stem.encode() + b".yaml" for leaf in leaves}


def _hits(entries: Iterable[git.Entry], names: set[bytes], spared: set[Oid]) -> set[Oid]:
    """Blobs that a tree has under the names of victims."""
    return {e.oid for e in entries if e.name in names and e.mode != git.TREE_MODE and e.oid not in spared}


def _texts(unreachable: set[Oid], read: git.Read, victims: Victims) -> list[bytes]:
    """What victims said, as far as objects that no ref leads to still hold it."""
    names = _names_of(victims)
    marks = [b" " + name + b"\0" for name in names]
    found: set[Oid] = set()
    for kind, data in map(read, unreachable):
        if kind != "tree":
            continue
        if len(marks) > _FEW:
            found |= _hits(git.parse_tree(data), names, set())
            continue
        for mark in marks:
            at = data.find(mark) + len(mark)
            if at >= len(mark):
                found.add(data[at : at + 20])
    return [read(oid)[1] for oid in (found & unreachable) - set(victims.forgotten.values())]


def _tainted(unreachable: set[Oid], read: git.Read, victims: Victims, texts: Collection[bytes]) -> set[Oid]:
    """Objects no ref leads to that hold a victim all the same: leavings of amended or forced work.

    Blobs count that share a run of bytes with one of `texts`: a version that was only staged.
    """
    if not unreachable or not victims:
        return set()
    quotes = worktrees.Quotes(texts)
    names, spared = _names_of(victims), set(victims.forgotten.values())
    uses: dict[Oid, set[Oid]] = {}
    tainted: set[Oid] = set()
    for oid in unreachable:
        kind, data = read(oid)
        if kind == "tree":
            entries = git.parse_tree(data)
            hits = _hits(entries, names, spared)
            tainted |= (hits & unreachable) | {oid} if hits else set()
            uses[oid] = {entry.oid for entry in entries}
        elif kind == "commit":
            commit = git.Commit.parse(data)
            uses[oid] = {commit.tree, *commit.parents}
        elif kind == "tag":
            uses[oid] = {git.tag_target(data)}
        elif quotes.stand_in(data):
            tainted.add(oid)
    while more := {oid for oid, below in uses.items() if oid not in tainted and below & tainted}:
        tainted |= more
    return tainted


def _clear_temporary(repository: Repository, journal: Journal, *, alone: bool) -> None:
    """Remove what a killed purge left half written; `alone` says that no gc is at work."""
    folder = f"{repository.objects}/pack"
    for path in pack.temporary_files(folder):
        if "gitmem" in os.path.basename(path) or (alone and (journal.old or journal.doomed)):
            host.remove(path)
    for name in journal.packs:
        if not os.path.exists(f"{folder}/{name}.idx"):
            pack.remove_pack(f"{folder}/{name}")


def _delete_loose(repository: Repository, doomed: set[Oid]) -> None:
    for oid in doomed & pack.loose_ids(repository.objects):
        host.remove(pack.loose_path(repository.objects, oid))


def _delete_derived(folder: str, doomed: set[Oid]) -> None:
    """Files that name old objects: caches of git, and lists for dumb clients."""
    for name in _DERIVED if worktrees.is_working(folder) else (*_DERIVED, *_HEADS):
        host.remove(f"{folder}/{name}")
    graphs = f"{folder}/objects/info/commit-graphs"
    for name in host.list_folder(graphs):
        host.remove(f"{graphs}/{name}")
    _rewrite_packed_refs(folder, doomed)
    if os.path.exists(f"{folder}/info/refs") or os.path.exists(f"{folder}/objects/info/packs"):
        try:
            host.git(folder, "update-server-info", "--force")
        except CorruptError:  # a gc writes them at this moment; they are made anew when next asked for
            host.remove(f"{folder}/info/refs")
            host.remove(f"{folder}/objects/info/packs")


def _rewrite_packed_refs(folder: str, doomed: set[Oid]) -> None:
    """A packed ref keeps its old id while a loose one overrides it."""
    lines = (host.read_bytes(f"{folder}/packed-refs") or b"").splitlines()
    ids = {bytes.fromhex(line[:40].decode()) for line in lines if len(line) > 40 and _is_hex(line[:40])}
    if not ids & doomed:
        return
    try:
        host.git(folder, "pack-refs", "--all", "--prune")
    except CorruptError as fault:
        remedy = f"If no git command is running there, remove {folder}/packed-refs.lock."
        raise UnavailableError(f"packed-refs cannot be rewritten: {fault}", hint=remedy) from None


def _drop_logs(folder: str, doomed: set[Oid]) -> list[str]:
    """Remove reflogs that name a doomed commit; their names."""
    dropped = []
    for where, _, names in os.walk(f"{folder}/logs"):
        for name in names:
            path = f"{where}/{name}"
            ids = {
                word
                for line in (host.read_bytes(path) or b"").splitlines()
                for word in line.split(b" ", 2)[:2]
            }
            if any(
                len(x) == 40 and bytes.fromhex(x.decode("ascii", "replace")) in doomed
                for x in ids
                if _is_hex(x)
            ):
                host.remove(path)
                dropped.append(os.path.relpath(path, f"{folder}/logs"))
    return sorted(dropped)


def _is_hex(word: bytes) -> bool:
    return not set(word) - set(b"0123456789abcdef")


def alternates(objects: str) -> list[str]:
    """Other object stores that this one borrows from."""
    lines = (
        (host.read_bytes(f"{objects}/info/alternates") or b"").decode("utf-8", "surrogateescape").splitlines()
    )
    return [
        os.path.normpath(os.path.join(objects, line)) for line in lines if line and not line.startswith("#")
    ]


def _look_into_alternate(path: str, doomed: set[Oid]) -> Place:
    name = f"alternate {path}"
    command = f"git -C '{os.path.dirname(path)}' gc --prune=now (when no ref there needs them)"
    try:
        held = (
            pack.loose_ids(path).union(*(pack.pack_ids(base) for base in pack.pack_paths(f"{path}/pack")))
            & doomed
        )
    except OSError as fault:
        return Place(name, Reach.UNREACHED, str(fault), command)
    if not os.path.isdir(path):
        return Place(name, Reach.UNREACHED, "it cannot be read", command)
    if held:
        return Place(name, Reach.UNREACHED, f"it holds {len(held)} of the objects", command)
    return Place(name, Reach.NOT_PRESENT)


def preview(repository: Repository, epoch: str, released: Iterable[LeafName]) -> int:
    """How many objects a purge of these leaves would delete. Changes nothing."""
    read = repository.reader()
    refs = repository.refs.all()
    tip = refs[HEADS + epoch]
    known = find_victims(read, tip)
    rewrite = Rewrite(read, Victims(known.released | set(released), known.forgotten))
    rewrite.run([tip])
    refs[HEADS + epoch] = rewrite.commits[tip]
    heads = {name[len(HEADS) :]: oid for name, oid in refs.items() if name.startswith(HEADS)}
    inventory = Inventory(repository)
    needed = Needed(inventory.packs[base] for base in inventory.closed(heads, read, without=[epoch]))
    git.reachable_from(refs.values(), rewrite.stage.read, needed)
    return sum(1 for oid in git.reachable([tip], read) if oid not in needed)
