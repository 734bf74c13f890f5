"""What an import took, and what it left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class ImportReport:
    """The outcome of an import; grows while it runs."""

    taken: int = 0
    present: int = 0
    """Were there already, with the same text."""
    released: list[str] = field(default_factory=list)
    """Left out because they were released: nothing brings them back."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Broken or conflicting entries: where, and why."""
    epochs: set[str] = field(default_factory=set)
    personas: set[str] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        return {
            "taken": self.taken,
            "present": self.present,
            "released": self.released,
            "left_out": [{"where": where, "why": why} for where, why in self.left_out],
            "epochs": sorted(self.epochs),
            "personas": sorted(self.personas),
        }
