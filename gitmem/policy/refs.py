"""Rules for refs and for the shape of history: what is pushed where, before any file is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gitmem.errors import UsageError
from gitmem.policy.commits import NewCommit
from gitmem.policy.rules import Violation
from gitmem.store.objects import Oid
from gitmem.tracepath import check_epoch

HEADS = "refs/heads/"
TAGS = "refs/tags/"
MAIN = "main"
WIKI_BRANCHES = (MAIN, "master")
_FORKS = "fork/"


class Update(NamedTuple):
    """One line of a push."""

    ref: str
    old: Oid | None
    """None for a new ref."""
    new: Oid | None
    """None for a deletion."""

    @property
    def branch(self) -> str:
        """The name of the branch; empty for any other ref."""
        return self.ref.removeprefix(HEADS) if self.ref.startswith(HEADS) else ""


def check_update(
    update: Update, refs: Mapping[str, Oid], pushed: Collection[str], *, wiki: bool
) -> Iterator[Violation]:
    """The ref itself: its name, and that it is neither deleted nor moved by somebody else meanwhile."""
    if update.ref.startswith(TAGS):
        return
    branch = update.branch
    fault = _wiki_fault(branch) if wiki else _branch_fault(branch)
    if fault:
        yield Violation("ref.name", "", fault)
    elif update.new is None and not (wiki and branch.startswith(_FORKS)):
        yield Violation("ref.delete", "", "this push would delete it.")
    if refs.get(update.ref) != update.old:
        yield Violation("history.stale", "", "it moved while this push was under way.")
    heads = {ref.removeprefix(HEADS) for ref in (*refs, *pushed) if ref.startswith(HEADS)}
    twins = sorted(name for name in heads if name != branch and name.lower() == branch.lower())
    if branch and update.old is None and twins:
        yield Violation("ref.twin", "", f"it differs from {twins[0]} only in case.")


def _branch_fault(branch: str) -> str:
    if not branch:
        return "it is neither a branch nor a tag."
    if branch == MAIN:
        return ""
    try:
        check_epoch(branch)
    except UsageError as fault:
        return fault.message
    return ""


def _wiki_fault(branch: str) -> str:
    if branch in WIKI_BRANCHES or branch.startswith(_FORKS):
        return ""
    return "a wiki has the branch main, and fork/PAGE for versions of a page that wait for a human."


def check_history(
    update: Update,
    commits: Sequence[NewCommit],
    *,
    below_old: Collection[Oid],
    shared: Collection[Oid],
    purged: Collection[Oid],
) -> Iterator[Violation]:
    """The shape of what a branch gains.

    `commits` are new to the repository, parents first; `below_old` are those of their parents that
    the branch had before; `shared` are commits that other branches of this push bring as well.
    """
    back = next((commit for commit in commits if commit.oid in purged), None)
    if back is not None:
        yield Violation("history.purged", "", "it brings back history that a release purged.").by(back.oid)
        return
    mine = {commit.oid for commit in commits}
    foreign = {parent for commit in commits for parent in commit.parents} - mine - set(below_old)
    roots = [commit for commit in commits if not commit.parents]
    if foreign or mine & set(shared) or (update.old is None and not commits):
        yield Violation("history.shared", "", "it builds on commits of another branch.")
    elif update.old is None and len(roots) != 1:
        yield Violation("history.root", "", f"it has {len(roots)} root commits.")
    elif update.old is not None and roots:
        yield Violation("history.root", "", "it merges a history with a root of its own.").by(roots[0].oid)
