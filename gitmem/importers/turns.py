"""turns.jsonl: one conversation turn a line, with `id`, `ts`, `speaker`, `role` and `text`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gitmem import times
from gitmem.checks import check_word
from gitmem.errors import UsageError
from gitmem.importers.entries import Entry
from gitmem.importers.report import ImportReport
from gitmem.memory import Memory


def read(memory: Memory, data: bytes, where: str, report: ImportReport) -> Iterator[Entry]:
    """The entries of a file; broken lines go to the report.

    A turn without a time takes that of the one before it in the file; if there is none, now.
    """
    zone = memory.zone
    at = memory.now()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        try:
            turn = _parse(line)
            if turn.get("ts") is not None:
                at = times.parse(turn["ts"], zone, "ts")
            yield Entry(
                place,
                memory.check_text(turn["text"]),
                at,
                turn_id=check_word("id", turn["id"], 200),
                role=check_word("role", turn.get("role")),
                speaker=check_word("speaker", turn.get("speaker")),
            )
        except UsageError as fault:
            report.left_out.append((place, fault.message))


def _parse(line: bytes) -> dict[str, Any]:
    try:
        turn = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as fault:
        raise UsageError(f"the line is not JSON: {fault}.") from None
    if not isinstance(turn, dict):
        raise UsageError("the line is not a JSON object.")
    for key in ("id", "text"):
        if not isinstance(turn.get(key), str):
            raise UsageError(f"the turn has no {key}.")
    if turn.get("ts") is not None and not isinstance(turn["ts"], str):
        raise UsageError("ts is not text.")
    return turn
