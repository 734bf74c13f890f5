"""Results as tables: for the terminal, and as Markdown for docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass, field

HEADS = ("what", "gitmem", "beside it", "ratio", "to reach", "reached")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement beside what it is compared with."""

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    reach: str = ""
    reached: bool | None = None
    """None where there is no number to reach."""

    def cells(self) -> tuple[str, ...]:
        verdict = {True: "yes", False: "NO", None: ""}[self.reached]
        return (self.what, self.ours, self.theirs, self.ratio, self.reach, verdict)


@dataclass(slots=True)
class Table:
    """The answer to one question."""

    title: str
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def text(self) -> str:
        """Columns for a terminal."""
        lines = [HEADS, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
        shown = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *(f"  {line}" for line in shown), *(f"  {n}" for n in self.notes)])

    def markdown(self) -> str:
        """A section of a Markdown page."""
        lines = [HEADS, ("---",) * len(HEADS), *(row.cells() for row in self.rows)]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join([f"## {self.title}", body, *self.notes])


def span(seconds: float) -> str:
    """A length of time in the unit that fits it."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.1f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def times(ours: float, theirs: float) -> str:
    """A ratio, as a factor: `0.12 x` of the time of the other."""
    return f"{ours / theirs:.3g} x"


def megabytes(size: int) -> str:
    """A size in MB of a million bytes."""
    return f"{size / 1e6:.1f} MB"
