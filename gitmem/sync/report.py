"""What a sync did, for a person and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gitmem.report import Place, Reach

WIKI = "wiki"
"""What the pages beside the memory are called in a report."""


@dataclass(slots=True)
class BranchReport:
    """One epoch (or `main`, or the wiki) and one remote."""

    branch: str
    taken: int = 0
    """Commits that came from there."""
    sent: int = 0
    """Commits that went there."""
    joined: bool = False
    """Both sides had new commits; ours were recreated on theirs."""
    released: int = 0
    """Leaves that were released there, and are purged here now."""
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    stopped: str = ""
    """Why nothing was done, and what to do."""
    notes: list[str] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to tell."""
        return not any(
            (self.taken, self.sent, self.joined, self.released, self.renamed, self.dropped)
        ) and not (self.conflicts or self.stopped or self.notes)

    def as_dict(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "taken": self.taken,
            "sent": self.sent,
            "joined": self.joined,
            "released": self.released,
            "renamed": self.renamed,
            "dropped": self.dropped,
            "conflicts": self.conflicts,
            "stopped": self.stopped or None,
            "notes": self.notes,
        }


@dataclass(slots=True)
class RemoteReport:
    """One persona and one remote."""

    persona: str
    remote: str
    url: str
    dry_run: bool = False
    error: str = ""
    """Why the remote could not be reached, or holds something else."""
    hint: str = ""
    reached: bool = True
    branches: dict[str, BranchReport] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    """Where released text was, or still is."""
    waiting: int = 0
    """Commits that this remote does not have yet."""

    def branch(self, name: str) -> BranchReport:
        """The report of a branch, made when first asked for."""
        return self.branches.setdefault(name, BranchReport(name))

    @property
    def told(self) -> list[BranchReport]:
        """Branches of which there is something to tell."""
        return [branch for branch in self.branches.values() if not branch.is_plain]

    @property
    def complete(self) -> bool:
        """Whether nothing is left to a person."""
        calm = not any(branch.stopped or branch.conflicts for branch in self.branches.values())
        return calm and not self.error and all(p.reach is not Reach.UNREACHED for p in self.places)

    def as_dict(self) -> dict[str, Any]:
        return {
            "persona": self.persona,
            "remote": self.remote,
            "url": self.url,
            "dry_run": self.dry_run,
            "reached": self.reached,
            "error": self.error or None,
            "hint": self.hint or None,
            "branches": [branch.as_dict() for branch in self.told],
            "places": [place.as_dict() for place in self.places],
            "waiting": self.waiting,
        }


@dataclass(slots=True)
class SyncReport:
    """All personas and remotes of one run."""

    remotes: list[RemoteReport] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 done, 3 something stopped or needs a person, 5 a remote was not reached."""
        if any(not remote.reached for remote in self.remotes):
            return 5
        return 0 if all(_calm(remote) for remote in self.remotes) else 3

    def as_dict(self) -> dict[str, Any]:
        return {"results": [remote.as_dict() for remote in self.remotes]}


def _calm(remote: RemoteReport) -> bool:
    return not remote.error and not any(b.stopped or b.conflicts for b in remote.branches.values())
