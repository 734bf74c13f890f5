"""Rules for what callers give: texts, tags, roles, shares. Each returns the value or raises `UsageError`."""

from __future__ import annotations

from collections.abc import Iterable

from gitmem.errors import UsageError

_SUMMARY_MAX = 2000


def check_text(text: str | bytes, max_bytes: int) -> bytes:
    """The bytes of a text that may be a leaf: UTF-8, not empty, no NUL, within the limit."""
    try:
        data = text.encode("utf-8") if isinstance(text, str) else bytes(text)
        data.decode("utf-8")
    except (UnicodeError, TypeError) as fault:
        raise UsageError(f"the text is not valid UTF-8: {fault}.") from None
    if not data:
        raise UsageError("the text is empty; there is nothing to remember.")
    if b"\0" in data:
        raise UsageError(f"the text holds a NUL character at byte {data.index(0)}; a leaf is plain text.")
    if len(data) > max_bytes:
        raise UsageError(
            f"the text is longer than the limit of {max_bytes} bytes (max_leaf_bytes in settings.yaml)."
        )
    return data


def check_summary(summary: str | None) -> str | None:
    """A summary that a sidecar can hold."""
    if summary is None:
        return None
    check_text(summary, 4 * _SUMMARY_MAX)
    if len(summary) > _SUMMARY_MAX:
        raise UsageError(f"the summary is {len(summary)} characters long; the limit is {_SUMMARY_MAX}.")
    return summary


def check_word(what: str, value: str | None, longest: int = 64) -> str | None:
    """Return a short text of one line, or raise `UsageError`."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        raise UsageError(f"{what} {str(value)[:80]!r} is not valid: 1 to {longest} printable characters.")
    return value


def check_words(what: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct words in order, each checked by `check_word`."""
    if isinstance(values, str):
        raise UsageError(f"{what}s must be a list of words, not one text.")
    return tuple(dict.fromkeys(word for value in values if (word := check_word(what, value)) is not None))


def check_keep(keep: float) -> float:
    """Return the share of a text that stays, or raise `UsageError`."""
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 <= keep <= 1:
        raise UsageError(f"keep must be a share from 0 to 1, not {keep!r}.")
    return float(keep)
