"""What a release found and did, place by place."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Reach(StrEnum):
    """What became of the leaf in one place."""

    PURGED = "purged"
    NOT_PRESENT = "not present"
    KEPT = "kept: human words"
    UNREACHED = "could not reach"


@dataclass(frozen=True, slots=True)
class Place:
    """A place where the text could have been."""

    name: str
    reach: Reach
    detail: str = ""
    command: str = ""
    """What to run, and where, for a place that could not be reached."""

    def as_dict(self) -> dict[str, str]:
        out = {"place": self.name, "status": self.reach.value}
        return (
            out
            | ({"detail": self.detail} if self.detail else {})
            | ({"command": self.command} if self.command else {})
        )


@dataclass(frozen=True, slots=True)
class Released:
    """One released leaf."""

    trace_path: str
    status: str
    commit: str | None
    """The epoch's tip after the purge."""

    def as_dict(self) -> dict[str, Any]:
        return {"trace_path": self.trace_path, "status": self.status, "commit": self.commit}


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """The outcome of `Memory.release`."""

    results: tuple[Released, ...]
    places: tuple[Place, ...]
    dry_run: bool = False
    objects: int = 0
    """Git objects that were deleted (in a dry run: that would be)."""
    notes: tuple[str, ...] = field(default=())
    """Sentences for a person: refs that were moved or dropped, for instance."""

    @property
    def complete(self) -> bool:
        """Whether every known place was reached."""
        return all(place.reach is not Reach.UNREACHED for place in self.places)

    def as_dict(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "complete": self.complete,
            "objects": self.objects,
            "places": [place.as_dict() for place in self.places],
            "notes": list(self.notes),
        }
