"""Times as people and leaves write them, in the time zone of a persona.

A leaf's name holds local time to the second. Fractions of a second are dropped. Day boundaries
are those of the persona's zone.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from gitmem.errors import UsageError

# Names in a zone database that mean something else on another machine.
_LOCAL_ZONES = ("localtime", "posixrules", "factory", "posix/", "right/")
_START = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """The time zone of that IANA name, `Asia/Shanghai` for instance.

    Raises:
        UsageError: there is no such zone.
    """
    if not name.lower().startswith(_LOCAL_ZONES):
        with contextlib.suppress(KeyError, ValueError, OSError):
            return ZoneInfo(name)
    raise UsageError(f"time zone {name!r} is not known; use an IANA name such as Asia/Shanghai or UTC.")


def parse(value: str | date | datetime, local: tzinfo, what: str = "time") -> datetime:
    """An exact time, in the zone `local`, without fractions of a second.

    Text is ISO 8601. A time without an offset is taken in `local`; where that local time occurs
    twice the first is meant.

    Raises:
        UsageError: not a time, or a local time that the zone skips.
    """
    found = _read(value, what)
    try:
        if found.tzinfo is not None:
            return found.astimezone(local).replace(microsecond=0)
        aware = found.replace(tzinfo=local, microsecond=0)
        there_and_back = aware.astimezone(UTC).astimezone(local)
    except (OverflowError, ValueError):
        raise UsageError(f"{what} {str(value)!r} is out of range.") from None
    if there_and_back.replace(tzinfo=None) != aware.replace(tzinfo=None):
        message = f"{what} {str(value)!r} does not exist in {local}: the clock was put forward over it."
        raise UsageError(message)
    return aware


def _read(value: str | date | datetime, what: str) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        message = f"{what} {str(value)!r} is not an ISO 8601 time such as 2026-05-31T11:54:47+08:00."
        raise UsageError(message) from None


def parse_until(value: str | date | datetime, local: tzinfo, what: str = "until") -> datetime:
    """Like `parse`, for the end of a span: a bare date means that the whole day belongs to it."""
    bare = isinstance(value, date) and not isinstance(value, datetime)
    if isinstance(value, str):
        try:
            date.fromisoformat(value)
            bare = True
        except ValueError:
            bare = False
    moment = parse(value, local, what)
    if not bare:
        return moment
    try:
        return datetime.combine(moment.date() + timedelta(days=1), time(), tzinfo=local)
    except OverflowError:  # the last day there is
        return datetime.max.replace(microsecond=0, tzinfo=local)


def iso(moment: datetime) -> str:
    """`2026-05-31T11:54:47+08:00`: always with an offset."""
    return moment.isoformat(timespec="seconds")


def to_name(moment: datetime) -> str:
    """The `YYYYMMDD-HHMMSS` of a time that is already in the persona's zone."""
    return f"{moment.year:04d}{moment:%m%d-%H%M%S}"


@lru_cache(maxsize=65536)
def from_name(second: str, local: tzinfo) -> datetime:
    """The time that `YYYYMMDD-HHMMSS` means in `local`; the first, where it occurs twice."""
    day, clock = second[:8], second[9:]
    return datetime(
        int(day[:4]),
        int(day[4:6]),
        int(day[6:]),
        int(clock[:2]),
        int(clock[2:4]),
        int(clock[4:]),
        tzinfo=local,
    )


@lru_cache(maxsize=65536)
def iso_from_name(second: str, local: tzinfo) -> str:
    """`iso` of `from_name`, remembered: reading a leaf needs nothing else."""
    return iso(from_name(second, local))


def is_plain(moment: datetime) -> bool:
    """Whether a name alone gives this time back: false in the second of two equal local hours."""
    return moment.fold == 0 or moment.utcoffset() == moment.replace(fold=0).utcoffset()


def seconds(moment: datetime) -> int:
    """Seconds since 1970-01-01 UTC; negative before."""
    return int((moment - _START).total_seconds())


def seconds_of(stamp: str, local: tzinfo) -> int | None:
    """`seconds` of ISO 8601 text, or None where it is not a time."""
    try:
        return seconds(parse(stamp, local))
    except UsageError:
        return None


def from_seconds(number: int, local: tzinfo) -> datetime:
    """The time so many seconds after 1970-01-01 UTC."""
    return (_START + timedelta(seconds=number)).astimezone(local)


def offset_minutes(moment: datetime) -> int:
    """Offset from UTC as git writes it: whole minutes."""
    delta = moment.utcoffset() or timedelta()
    return int(delta.total_seconds() / 60)
