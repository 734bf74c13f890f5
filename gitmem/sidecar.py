"""The sidecar of a leaf: its state, and what became known about it after it was said.

A sidecar stands at `meta/KIND/STEM.yaml` beside the leaf. A tombstone is a sidecar of canonical
bytes; whether bytes are one is decided on the bytes alone, because the purge function must give
the same answer everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gitmem import yamltext
from gitmem.errors import CorruptError
from gitmem.states import State

_TOMBSTONE = b"state: released\n"
_FORGOTTEN = re.compile(rb"state: (?:withered|archived)\nforgotten: true\n")
_BLOB_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Fields in the order in which they are written; an absent field is None or empty."""

    state: State = State.ACTIVE
    forgotten: bool = False
    """The full text was purged when the leaf was withered; only the blur exists."""
    ts: str | None = None
    """When it was said, ISO 8601; only where the name does not tell."""
    blob: str | None = None
    """Git id of the full text, while it is not what the branch shows."""
    blur: str | None = None
    """Git id of the blur, in a forgotten leaf."""
    archived_at: str | None = None
    withered_at: str | None = None
    released_at: str | None = None
    compression_ratio: float | None = None
    """Raw bytes / zlib bytes of the full text, taken when it was archived."""
    summary: str | None = None
    summary_by: str | None = None
    """`extract` or `model:NAME`; absent where the writer of the leaf gave the summary."""
    tags: tuple[str, ...] = ()
    turn_id: str | None = None
    role: str | None = None
    refs: tuple[str, ...] = ()
    affect: dict[str, float] | None = None
    salience: float | None = None
    human_visible: bool | None = None
    told_at: str | None = None
    synced_page_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields this version does not know; kept as they are."""

    @property
    def full_text(self) -> str | None:
        """Git id of the best text history holds: the original, or the blur where it was forgotten."""
        return self.blur if self.forgotten else self.blob


_EMPTY = Sidecar()
_NAMES = tuple(f.name for f in fields(Sidecar) if f.name != "extra")
_TEXTS = frozenset(
    [
        "ts",
        "archived_at",
        "withered_at",
        "released_at",
        "summary",
        "summary_by",
        "turn_id",
        "role",
        "told_at",
        "synced_page_id",
    ]
)


def parse(data: bytes, where: str) -> Sidecar:
    """Read a sidecar.

    Raises:
        CorruptError: not a YAML mapping, or a known field of the wrong shape; names `where`.
    """
    raw = yamltext.load(data, where)
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in _NAMES:
            extra[key] = value
        elif value is not None:
            values[key] = _checked(key, value, where)
    return Sidecar(**values, extra=extra)


def _checked(key: str, value: Any, where: str) -> Any:
    if key == "state":
        if value not in tuple(State):
            raise CorruptError(f"{where}: state {value!r} is not one of: {', '.join(State)}.")
        return State(value)
    if key in ("blob", "blur"):
        if not isinstance(value, str) or not _BLOB_ID.fullmatch(value):
            raise CorruptError(f"{where}: {key} must be a git id of 40 hexadecimal digits.")
        return value
    if key in ("forgotten", "human_visible"):
        return _of_type(key, value, bool, where)
    if key in _TEXTS:
        return value if isinstance(value, str) else str(value)
    if key in ("tags", "refs"):
        if not isinstance(value, list):
            raise CorruptError(f"{where}: {key} must be a list.")
        return tuple(str(item) for item in value)
    if key == "affect":
        return _of_type(key, value, dict, where)
    return _of_type(key, value, (int, float), where)


def _of_type(key: str, value: Any, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CorruptError(f"{where}: {key} is of the wrong type ({type(value).__name__}).")
    return value


def dump(sidecar: Sidecar) -> bytes | None:
    """The canonical bytes, or None where there is nothing to say."""
    out: dict[str, Any] = {}
    for name in _NAMES:
        value = getattr(sidecar, name)
        if value != getattr(_EMPTY, name):
            out[name] = list(value) if isinstance(value, tuple) else value
    out.update(sidecar.extra)
    return yamltext.dump(out) if out else None


def tombstone(sidecar: Sidecar, released_at: str) -> bytes:
    """The canonical bytes that stand in place of a released leaf."""
    bare = Sidecar(state=State.RELEASED, released_at=released_at, turn_id=sidecar.turn_id, role=sidecar.role)
    data = dump(bare)
    assert data is not None
    return data


def is_tombstone(data: bytes) -> bool:
    """Whether a sidecar's bytes are a tombstone."""
    return data.startswith(_TOMBSTONE)


def is_forgotten(data: bytes) -> bool:
    """Whether a sidecar's bytes say that the original was purged."""
    return _FORGOTTEN.match(data) is not None


def without_original(data: bytes) -> bytes | None:
    """An earlier sidecar of a forgotten leaf, rid of the original: its id and quoted summary.

    Bytes that hold neither are returned as they are; None where nothing is left, or where the
    bytes are not a sidecar at all and so might quote anything.
    """
    if is_tombstone(data) or is_forgotten(data):
        return data
    try:
        old = parse(data, "sidecar")
    except CorruptError:
        return None
    quoted = old.summary_by == "extract"
    if old.blob is None and not quoted:
        return data
    rid = replace(
        old, blob=None, summary=None if quoted else old.summary, summary_by=None if quoted else old.summary_by
    )
    return dump(rid)
