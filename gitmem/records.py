"""Records: what a persona writes about itself, in any JSON shape.

A record is a file `hldp/mem_….json`. gitmem writes it once and never changes its bytes; what
becomes known later stands in the sidecar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitmem.errors import CorruptError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as it was written; fields that the bytes lack have their defaults."""

    id: str
    persona: str = ""
    timestamp: str | None = None
    hldp: Any = None
    tags: tuple[str, ...] = ()
    human_visible: bool = False
    told: bool | None = None
    context: Any = None


def dump(record: Record) -> bytes:
    """The bytes of a new record.

    Raises:
        UsageError: the value is not JSON (NaN, a set, a key that is not text, half a character).
    """
    out: dict[str, Any] = {
        "id": record.id,
        "persona": record.persona,
        "timestamp": record.timestamp,
        "hldp": record.hldp,
        "tags": list(record.tags),
        "human_visible": record.human_visible,
    }
    if record.told is not None:
        out["told"] = record.told
    if record.context is not None:
        out["context"] = record.context
    try:
        _check_json(out)
        return (json.dumps(out, ensure_ascii=False, allow_nan=False, indent=2) + "\n").encode("utf-8")
    except (TypeError, ValueError, RecursionError) as fault:
        raise UsageError(f"the record's value is not JSON: {fault}.") from None


def _check_json(value: Any) -> None:
    """json.dumps turns keys into text silently; a record must come back as it was given."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not text")
            _check_json(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_json(item)


def parse(data: bytes, where: str) -> Record:
    """Read a record, however little it holds.

    Raises:
        CorruptError: not UTF-8 JSON, or not an object; names `where`.
    """
    try:
        raw = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as fault:
        raise CorruptError(f"{where} is not readable JSON: {fault}.") from None
    if not isinstance(raw, dict):
        raise CorruptError(f"{where} must be a JSON object.")
    tags = raw.get("tags")
    told = raw.get("told")
    timestamp = raw.get("timestamp")
    return Record(
        id=str(raw.get("id", "")),
        persona=str(raw.get("persona", "")),
        timestamp=timestamp if isinstance(timestamp, str) else None,
        hldp=raw.get("hldp"),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
        human_visible=raw.get("human_visible") is True,
        told=told if isinstance(told, bool) else None,
        context=raw.get("context"),
    )
