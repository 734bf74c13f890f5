"""Credentials of well-known shapes in a text. Shapes only: words about keys are not keys."""

from __future__ import annotations

import re

_SHAPES = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "an AWS access key": rb"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])",
    "a GitHub token": rb"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,})",
    "a GitLab token": rb"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}",
    "a Slack token": rb"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{20,}",
    "a Google API key": rb"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}",
    "a Stripe key": rb"(?<![A-Za-z0-9])[sr]k_live_[A-Za-z0-9]{20,}",
    "an API key": rb"(?<![A-Za-z0-9])sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}",
}
_PATTERNS = {name: re.compile(shape) for name, shape in _SHAPES.items()}


def find(data: bytes) -> list[tuple[str, int]]:
    """What credentials a text seems to hold, and in which line (from 1) each stands."""
    found = [(name, match.start()) for name, shape in _PATTERNS.items() for match in shape.finditer(data)]
    return [(name, data.count(b"\n", 0, at) + 1) for name, at in sorted(found, key=lambda pair: pair[1])]
