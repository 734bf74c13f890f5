"""Asking the policy about a push: reads the new commits, hands them to the rules, gathers the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitmem import host
from gitmem.errors import CorruptError
from gitmem.policy.commits import EpochCheck, NewCommit, check_objects
from gitmem.policy.files import File
from gitmem.policy.manifests import check_main
from gitmem.policy.pages import check_wiki
from gitmem.policy.refs import HEADS, MAIN, TAGS, Update, check_history, check_update
from gitmem.policy.rules import Limits, Violation
from gitmem.receive.identity import Actor
from gitmem.receive.tombstones import Tombstones
from gitmem.settings import Settings
from gitmem.store import erase
from gitmem.store import objects as git
from gitmem.store.objects import Oid
from gitmem.store.repository import Repository
from gitmem.tracepath import LeafName

_NONE = b"0" * 40
_FOLDER = b"040000"
_ABSENT = b"000000"


@dataclass(slots=True)
class Examination:
    """What the policy says of a push."""

    violations: list[Violation] = field(default_factory=list)
    releases: dict[str, set[LeafName]] = field(default_factory=dict)
    """Leaves that each epoch releases, or whose originals it forgets."""
    commits: int = 0
    """New commits that were looked at."""

    @property
    def refused(self) -> bool:
        """Whether a rule is broken; warnings do not count."""
        return any(not violation.warning for violation in self.violations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """A push to examine."""

    repository: Repository
    updates: Sequence[Update]
    refs: Mapping[str, Oid]
    """Every ref of the repository before the push."""
    actor: Actor
    settings: Settings
    wiki: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    """What git needs to see the pushed objects: the variables of its quarantine."""


def examine(push: Push) -> Examination:
    """Ask every rule about every new commit of a push. Changes nothing.

    Raises:
        CorruptError: an object of the push cannot be read.
    """
    result = Examination()
    if push.actor.role == "human" and not push.wiki:
        what = f"{push.actor.name} is a human's account."
        result.violations = [Violation("actor.role", "", what).of(update.ref) for update in push.updates]
        return result
    pushed = [update.ref for update in push.updates]
    good: list[Update] = []
    for update in push.updates:
        found = [*check_update(update, push.refs, pushed, wiki=push.wiki)]
        found += _check_tag(push, update) if update.ref.startswith(TAGS) else []
        result.violations += [violation.of(update.ref) for violation in found]
        if not found and update.branch and update.new is not None:
            good.append(update)
    _examine_branches(push, good, result)
    return result


def _check_tag(push: Push, update: Update) -> Iterator[Violation]:
    if update.new is None:
        return
    oid = update.new
    kind, data = push.repository.read(oid)
    while kind == "tag":
        oid = git.tag_target(data)
        kind, data = push.repository.read(oid)
    heads = [tip for ref, tip in push.refs.items() if ref.startswith(HEADS)]
    if kind != "commit" or not any(push.repository.is_below(oid, tip) for tip in heads):
        yield Violation("ref.tag", "", f"it names {oid.hex()[:12]}, which no branch here has.")


def _examine_branches(push: Push, updates: Sequence[Update], result: Examination) -> None:
    tips = {update.ref: update.new for update in updates if update.new is not None}
    hidden = [tip for ref, tip in push.refs.items() if ref.startswith(HEADS)]
    pool = new_commits(push.repository.folder, tips.values(), hidden, push.environment)
    result.commits = len(pool)
    chains = {ref: _chain(tip, pool) for ref, tip in tips.items()}
    purged = erase.purged_commits(push.repository)
    released = _tombstones(push, tips) if pool and not push.wiki else None
    for update in updates:
        chain = chains[update.ref]
        found = [*_check_history(push, update, chain, chains, purged)]
        try:
            if not found:
                # In its own repositories git has looked at the form of trees when it took the push.
                trees = not (push.environment and push.repository.is_strict)
                found = [*check_objects(chain, push.repository.reader(), trees=trees)]
            if not found:
                found = [*_check_content(push, update, chain, released, result)]
        except CorruptError as fault:
            found = [Violation("history.damaged", "", fault.message)]
        result.violations += [violation.of(update.ref) for violation in found]


def _tombstones(push: Push, tips: Mapping[str, Oid]) -> Tombstones:
    """Names that no push may bring back: those released here, and those this very push releases."""
    heads = {ref.removeprefix(HEADS): tip for ref, tip in push.refs.items() if ref.startswith(HEADS)}
    found = Tombstones(push.repository, heads)
    for ref, tip in tips.items():
        if ref != HEADS + MAIN:
            found.learn(ref.removeprefix(HEADS), tip, push.repository.reader())
    return found


def _check_history(
    push: Push,
    update: Update,
    chain: Sequence[NewCommit],
    chains: Mapping[str, Sequence[NewCommit]],
    purged: set[Oid],
) -> Iterator[Violation]:
    old, new = update.old, update.new
    assert new is not None
    below = push.repository.is_below
    mine = {commit.oid for commit in chain}
    edge = {parent for commit in chain for parent in commit.parents} - mine
    below_old = {parent for parent in edge if old is not None and below(parent, old)}
    others = {commit.oid for ref, found in chains.items() if ref != update.ref for commit in found}
    shape = [*check_history(update, chain, below_old=below_old, shared=others, purged=purged)]
    back = [violation for violation in shape if violation.rule == "history.purged"]
    if not back and old is not None and not below(old, new):
        yield Violation("history.forward", "", "this push would throw commits of it away.")
    else:
        yield from shape


def _check_content(
    push: Push,
    update: Update,
    chain: Sequence[NewCommit],
    released: Tombstones | None,
    result: Examination,
) -> Iterator[Violation]:
    read = push.repository.reader()
    settings, role = push.settings, push.actor.role
    limits = Limits(
        max_bytes=settings.max_leaf_bytes,
        secrets=settings.secrets,
        may_release=role == "operator" or settings.release_by == "persona",
    )
    if push.wiki:
        yield from check_wiki(chain, read, limits)
    elif update.branch == MAIN:
        yield from check_main(chain, read, limits, operator=role == "operator")
    elif chain and released is not None:
        check = EpochCheck(read, limits, lambda leaf: released.epoch_of(leaf, update.branch))
        assert update.new is not None
        yield from check.run(chain, git.Commit.parse(read(update.new)[1]).tree)
        if check.releases:
            result.releases[update.branch] = check.releases


# -- new commits ----------------------------------------------------------------------------


def new_commits(
    folder: str, tips: Iterable[Oid], hidden: Iterable[Oid], environment: Mapping[str, str]
) -> dict[Oid, NewCommit]:
    """Commits that `tips` lead to and `hidden` do not, parents first, each with what it changes."""
    wanted = [tip.hex() for tip in tips]
    if not wanted:
        return {}
    lines = "\n".join([*wanted, *("^" + oid.hex() for oid in hidden)]) + "\n"
    out = host.git(
        folder, "log", "-z", "--raw", "-r", "-t", "--root", "--no-abbrev", "--no-renames",
        "--diff-merges=off", "--ignore-submodules=none", "--no-ext-diff", "--topo-order", "--reverse",
        "--stdin", "--format=%x01%H %T %P",
        data=lines.encode(), more=environment,
    )  # fmt: skip
    return _parse_log(out)


def _parse_log(out: bytes) -> dict[Oid, NewCommit]:
    ids: list[tuple[Oid, ...]] = []
    changes: list[dict[bytes, File | None]] = []
    trees: list[set[Oid]] = []
    fields = iter(out.split(b"\0"))
    for field_ in fields:
        line = field_.lstrip(b"\n")
        if line.startswith(b"\x01"):
            ids.append(tuple(bytes.fromhex(word.decode("ascii")) for word in line[1:].split()))
            changes.append({})
            trees.append(set())
        elif line.startswith(b":"):
            before, mode, _, oid, _ = line[1:].split()
            path, new = next(fields), None if oid == _NONE else bytes.fromhex(oid.decode("ascii"))
            if mode == _FOLDER and new is not None:
                trees[-1].add(new)
            if mode not in (_FOLDER, _ABSENT) and new is not None:
                changes[-1][path] = File(mode, new)
            elif before not in (_FOLDER, _ABSENT):
                changes[-1][path] = None
    return {
        commit: NewCommit(commit, tree, tuple(parents), change, frozenset(below))
        for (commit, tree, *parents), change, below in zip(ids, changes, trees, strict=True)
    }


def _chain(tip: Oid, pool: Mapping[Oid, NewCommit]) -> list[NewCommit]:
    """Those of the new commits that `tip` leads to, parents first."""
    mine: set[Oid] = set()
    waiting = [tip]
    while waiting:
        oid = waiting.pop()
        if oid in pool and oid not in mine:
            mine.add(oid)
            waiting.extend(pool[oid].parents)
    return [commit for oid, commit in pool.items() if oid in mine]
