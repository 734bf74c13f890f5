"""The states of a leaf and the moves between them: the one table that library, hook and CLI ask."""

from __future__ import annotations

from enum import StrEnum

from gitmem.errors import RefusedError


class State(StrEnum):
    """What a leaf is; the value is what its sidecar says (nothing, for active)."""

    ACTIVE = "active"
    WITHERED = "withered"
    ARCHIVED = "archived"
    RELEASED = "released"

    @property
    def status(self) -> str:
        """The word `trace` answers with: as the spec has it, `wither` for a withered leaf."""
        return "wither" if self is State.WITHERED else self.value


_MOVES: dict[State, frozenset[State]] = {
    State.ACTIVE: frozenset({State.WITHERED, State.ARCHIVED, State.RELEASED}),
    State.WITHERED: frozenset({State.ACTIVE, State.ARCHIVED, State.RELEASED}),
    State.ARCHIVED: frozenset({State.ACTIVE, State.RELEASED}),
    State.RELEASED: frozenset(),
}


def is_legal(old: State, new: State) -> bool:
    """Whether a leaf may move from `old` to `new`. Staying is no move."""
    return new in _MOVES[old]


def check_move(path: str, old: State, new: State) -> None:
    """Raise `RefusedError` unless the leaf at `path` may move from `old` to `new`."""
    if is_legal(old, new):
        return
    if old is State.RELEASED:
        raise RefusedError(f"{path} was released; nothing brings a released leaf back.")
    if old is new:
        raise RefusedError(f"{path} is already {old}.")
    allowed = ", ".join(sorted(_MOVES[old]))
    raise RefusedError(f"{path} is {old} and cannot become {new}; it can become: {allowed}.")
