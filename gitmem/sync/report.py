"""What a sync did, for a person and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gitmem.report import Place, Reach, ReleaseReport
from gitmem.tracepath import TracePath

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


def verified(report: ReleaseReport, told: SyncReport) -> ReleaseReport:
    """The report of a release, with what each remote was found to hold in place of `remote URL`."""
    epochs = sorted({TracePath.parse(result.trace_path).epoch for result in report.results})
    found = {f"remote {remote.url}": _verdicts(remote, epochs) for remote in told.remotes}
    kept = [place for place in report.places if place.name not in found]
    return replace(report, places=(*kept, *(place for places in found.values() for place in places)))


def _verdicts(remote: RemoteReport, epochs: Iterable[str]) -> list[Place]:
    name, again = f"remote {remote.url}", f"gitmem sync {remote.persona}"
    if remote.error:
        return [Place(name, Reach.UNREACHED, remote.error, again)]
    answers = {place.name: place for place in remote.places}
    verdicts = []
    for epoch in epochs:
        stopped = remote.branches[epoch].stopped if epoch in remote.branches else ""
        answer = answers.get(f"{remote.url} {epoch}")
        if answer is not None:
            verdicts.append(replace(answer, name=f"{name} {epoch}"))
        elif stopped:
            verdicts.append(Place(f"{name} {epoch}", Reach.UNREACHED, stopped, again))
        else:
            verdicts.append(Place(f"{name} {epoch}", Reach.NOT_PRESENT, "its branch does not hold it"))
    return verdicts
