"""Blur: what is left of a text when its details fade.

Whole sentences stay word for word and the rest becomes `……`. A text of one sentence loses
clauses, a text of one clause loses characters. The same text and share always give the same
blur; a smaller share keeps a subset of what a larger one keeps. Without its `……` the blur is a
subsequence of the text: nothing is ever made up.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from gitmem.errors import RefusedError

ELISION = "……"

# A sentence ends at CJK or Western stops (with closing quotes) or at a line end.
_SENTENCE = re.compile(r".*?(?:[。！？!?；;…]+[”’」』）)\"']*|\.(?=\s|$)|\n|$)\s*", re.DOTALL)
_CLAUSE = re.compile(r".*?(?:[，,、：:—]+|\s|$)\s*", re.DOTALL)
_JOINERS = "\u200d\ufe0e\ufe0f"


def blur(text: str, keep: float) -> str:
    """The blurred `text`; `keep` is the share of sentences to keep, 0 to 1.

    Never everything and never nothing is kept, whatever the share.

    Raises:
        RefusedError: the text is too short to lose a part and keep one.
    """
    for units in (sentences(text), _split(_CLAUSE, text)):
        if len(units) > 1:
            result = _elide(units, _ranked(units)[: _count(len(units), keep)])
            if result != text:
                return result
    characters = _characters(text)
    count = _count(len(characters), keep) if len(characters) > 1 else 0
    for kept in (count, *range(len(characters) - 1, 0, -1)):
        result = _elide(characters, list(range(kept)))
        if kept and result != text:
            return result
    raise RefusedError("the text is too short to be blurred.", hint="Archive or release it instead.")


def _count(units: int, keep: float) -> int:
    return max(1, min(units - 1, round(keep * units)))


def sentences(text: str) -> list[str]:
    """The sentences of a text; joined they are the text again."""
    return _split(_SENTENCE, text)


def _split(pattern: re.Pattern[str], text: str) -> list[str]:
    """`text` cut into units that join to it again; white space stays with what precedes it."""
    units: list[str] = []
    for unit in pattern.findall(text):
        if units and not unit.strip():
            units[-1] += unit
        elif unit:
            units.append(unit)
    if len(units) > 1 and not units[0].strip():
        units[:2] = [units[0] + units[1]]
    return units


def _characters(text: str) -> list[str]:
    """Characters as a reader sees them: marks and joined emoji stay with their base."""
    out: list[str] = []
    for char in text:
        if out and (unicodedata.combining(char) or char in _JOINERS or out[-1][-1] == "\u200d"):
            out[-1] += char
        else:
            out.append(char)
    return out if len(out) > 1 else list(text)


def _ranked(units: list[str]) -> list[int]:
    """Indexes of units, the most central first: those whose character pairs recur elsewhere."""
    pairs = [{unit[i : i + 2] for i in range(len(unit) - 1)} for unit in units]
    spread = Counter(pair for each in pairs for pair in each)
    scores = [
        sum(spread[p] - 1 for p in each) / (len(each) or 1) + bool(u.strip())
        for each, u in zip(pairs, units, strict=True)
    ]
    return sorted(range(len(units)), key=lambda i: (-scores[i], i))


def _elide(units: list[str], kept: list[int]) -> str:
    chosen = set(kept)
    out: list[str] = []
    for i, unit in enumerate(units):
        if i in chosen:
            out.append(unit)
        elif i == 0 or i - 1 in chosen:
            out.append(ELISION)
    return "".join(out)


def is_blur(text: str, blurred: str) -> bool:
    """Whether `blurred` is a part of `text`, in its order, and not all of it: nothing is made up."""
    rest = iter(text)
    # Each `in` goes on where the one before ended.
    kept = all(char in rest for part in blurred.split(ELISION) for char in part)
    return kept and blurred != text and ELISION in blurred


def extract(text: str, limit: int = 120) -> str:
    """The most central sentence of `text`, word for word, at most `limit` characters; may be empty."""
    units = [unit.strip() for unit in sentences(text)]
    for i in _ranked(units):
        if units[i] and units[i] != ELISION and len(units[i]) <= limit:
            return units[i]
    return ""
