"""YAML as gitmem writes it: one canonical form, so that equal values are equal bytes.

`dump` writes a plain block mapping, one key a line, lists and mappings inside it in flow style;
`load` reads any YAML mapping with the safe loader. Times stay text: a memory's clock is never
re-interpreted by a parser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from gitmem.errors import CorruptError

_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]
    """The safe loader without the timestamp type."""


_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
    for first, rules in _Base.yaml_implicit_resolvers.items()
}

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./:+-]*", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:\d\d(?::\d\d)?|Z)?", re.ASCII)
_WORDS = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])
# A line this file writes itself, in its commonest shapes, needs no YAML parser.
_FAST = re.compile(
    rb'([a-z_]+): (?:([A-Za-z][A-Za-z0-9_./:+-]*)|(\d{4}-\d\d-\d\dT[0-9:.+-]+)|"([^"\\\n]*)")', re.ASCII
)
# Characters that a YAML reader refuses or folds, though JSON leaves them as they are.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def load(data: bytes, where: str) -> dict[str, Any]:
    """Read a mapping with text keys.

    Raises:
        CorruptError: it is not UTF-8, not YAML, or not such a mapping; the message names `where`.
    """
    fast = _load_fast(data)
    if fast is not None:
        return fast
    try:
        value = yaml.load(data.decode("utf-8"), Loader=_Loader)  # noqa: S506 - the safe loader, narrowed
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as fault:
        reason = " ".join(str(fault).split())
        raise CorruptError(f"{where} is not readable YAML: {reason[:200]}") from None
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise CorruptError(f"{where} must be a YAML mapping of named fields.")
    return value


def _load_fast(data: bytes) -> dict[str, Any] | None:
    """Read lines of the plainest shape, or None where a line is of another one."""
    found: dict[str, Any] = {}
    for line in data.removesuffix(b"\n").split(b"\n"):
        match = _FAST.fullmatch(line)
        if not match:
            return None
        key, word, time, quoted = match.groups()
        name = key.decode()
        if name in found or name in _WORDS:
            return None
        if word is not None:
            if word.lower().decode() in _WORDS:
                found[name] = {b"true": True, b"false": False}.get(word)
                if found[name] is None:
                    return None
            elif word.endswith(b":"):
                return None
            else:
                found[name] = word.decode()
            continue
        try:
            text = (time or quoted or b"").decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not text.isprintable() or (time is not None and not _TIME.fullmatch(text)):
            return None
        found[name] = text
    return found


def dump(fields: Mapping[str, Any]) -> bytes:
    """Write a mapping, keys in the given order. Values are JSON values."""
    return "".join(f"{_scalar(key)}: {_flow(value)}\n" for key, value in fields.items()).encode("utf-8")


def _flow(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _scalar(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(str(k))}: {_flow(v)}" for k, v in value.items()) + "}"
    return "[" + ", ".join(_flow(item) for item in value) + "]"


def _float(value: float) -> str:
    text = repr(value)
    if text in ("inf", "-inf", "nan"):
        return text.replace("inf", ".inf").replace("nan", ".nan")
    # YAML 1.1 wants a dot in the mantissa before it reads an exponent.
    mantissa, mark, exponent = text.partition("e")
    if not mark:
        return text
    sign = "" if exponent.startswith("-") else "+"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent.removeprefix('+')}"


def _scalar(value: str) -> str:
    plain = _PLAIN.fullmatch(value) and not value.endswith(":") and value.lower() not in _WORDS
    if plain or _TIME.fullmatch(value):
        return value
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
