"""What `gitmem clone` and `gitmem sync DIR` did, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gitmem.report import Place, Reach


@dataclass(slots=True)
class BranchReport:
    """What became of one branch of a working copy: an epoch, or `main`."""

    name: str
    taken: int = 0
    """Commits that came from the other side."""
    waiting: int = 0
    """Commits that are only here; `git push` sends them."""
    moved: bool = False
    """Whether the branch that is checked out here is another commit now."""
    added: bool = False
    """Whether its folder was made just now."""
    released: list[str] = field(default_factory=list)
    """Leaves, as `KIND/NAME`, that were purged from this clone."""
    stopped: str = ""
    """Why nothing of it was changed, if so."""
    remedy: str = ""
    """What to do about that."""

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.taken or self.waiting or self.moved or self.added or self.released or self.stopped)

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "epoch": self.name,
            "taken": self.taken,
            "waiting": self.waiting,
            "moved": self.moved,
            "added": self.added,
            "released": list(self.released),
        }
        return out | ({"stopped": self.stopped, "remedy": self.remedy} if self.stopped else {})


@dataclass(slots=True)
class CopyReport:
    """The outcome of `clone` or `sync` for one working copy."""

    folder: str
    remote: str
    """URL of the other side, without a login."""
    persona: str = ""
    branches: list[BranchReport] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """Where text of released leaves was, or still is."""
    notes: list[str] = field(default_factory=list)
    """Sentences for a person."""

    @property
    def waiting(self) -> int:
        """Commits that wait for a push, in all branches."""
        return sum(branch.waiting for branch in self.branches)

    @property
    def released(self) -> int:
        """How many leaves were purged."""
        return sum(len(branch.released) for branch in self.branches)

    @property
    def stopped(self) -> bool:
        """Whether a branch could not be brought up to date."""
        return any(branch.stopped for branch in self.branches)

    @property
    def complete(self) -> bool:
        """Whether nothing stopped, and released text is gone from every known place."""
        return not self.stopped and all(place.reach is not Reach.UNREACHED for place in self.places)

    def as_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "remote": self.remote,
            "persona": self.persona,
            "complete": self.complete,
            "waiting": self.waiting,
            "epochs": [branch.as_dict() for branch in self.branches],
            "places": [place.as_dict() for place in self.places],
            "notes": list(self.notes),
        }
