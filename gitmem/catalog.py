"""The catalog: which leaves there are, by time, by turn and by name. Derived; holds no text.

One SQLite file for a home. It notes the commit of each epoch it reflects, and before each use
catches up with the branches by comparing trees, so a plain `git push` is seen at once. Deleting
the file loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, TypeVar

from gitmem import host, times
from gitmem.errors import CorruptError, UnavailableError, UsageError
from gitmem.leaves import look, said_at
from gitmem.states import State
from gitmem.store.objects import Oid
from gitmem.store.repository import MAIN, Repository, View
from gitmem.tracepath import KINDS, Kind, LeafName, check_epoch, check_kind, check_name, is_name, leaf_order

FORMAT = 1
_SCHEMA = (
    "CREATE TABLE stamp (repo TEXT, epoch TEXT, tip BLOB, PRIMARY KEY (repo, epoch)) WITHOUT ROWID",
    """CREATE TABLE leaf (
        repo TEXT, epoch TEXT, kind TEXT, name TEXT, at INTEGER, seq INTEGER,
        state TEXT, turn_id TEXT, role TEXT, PRIMARY KEY (repo, epoch, kind, name)
    ) WITHOUT ROWID""",
    "CREATE INDEX leaf_time ON leaf (repo, at, seq, epoch, kind, name)",
    "CREATE INDEX leaf_turn ON leaf (repo, turn_id) WHERE turn_id IS NOT NULL",
    "CREATE INDEX leaf_name ON leaf (repo, kind, name)",
)
_COLUMNS = "epoch, kind, name, at, seq, state"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """A leaf as the catalog knows it."""

    epoch: str
    leaf: LeafName
    at: int
    """Seconds since 1970 UTC."""
    seq: int
    """Order within the second."""
    state: State

    @property
    def cursor(self) -> str:
        """The place of this row in the order of time, as text."""
        return f"{self.at}_{self.seq}_{self.epoch}/{self.leaf.path}"


def _row(columns: tuple[Any, ...]) -> Row:
    epoch, kind, name, at, seq, state = columns
    return Row(epoch, LeafName(kind, name), at, seq, State(state))


def parse_cursor(value: str) -> tuple[int, int, str, Kind, str]:
    """Read `Row.cursor`.

    Raises:
        UsageError: it is not one.
    """
    try:
        at, seq, path = value.split("_", 2)
        epoch, kind, name = path.split("/")
        return int(at), int(seq), check_epoch(epoch), check_kind(kind), check_name(kind, name)
    except ValueError:
        message = f"cursor {value[:80]!r} is not one that gitmem gave out; use the `next` of the page before."
        raise UsageError(message) from None


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class _Open(threading.local):
    """What one thread holds open."""

    connection: sqlite3.Connection | None = None
    inode: int = 0
    stamps: dict[str, dict[str, Oid]]
    seen: dict[str, Mapping[str, Oid]]
    """The branches at the last look, the very object: `Refs` gives it again while nothing moved."""


class Catalog:
    """The catalog of one home; may be used by several threads and processes at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = _Open()

    def close(self) -> None:
        """Let go of this thread's connection."""
        if self._open.connection is not None:
            self._open.connection.close()
            self._open.connection = None

    # -- the file ----------------------------------------------------------------------------

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work`; a damaged file is thrown away and made anew, once."""
        try:
            return work(self._connection())
        except sqlite3.OperationalError as fault:
            if "locked" in str(fault) or "readonly" in str(fault) or "unable to open" in str(fault):
                raise UnavailableError(f"{self._path} cannot be used: {fault}.") from None
        except sqlite3.DatabaseError:
            pass
        self.close()
        for ending in ("", "-wal", "-shm"):
            host.remove(self._path + ending)
        try:
            return work(self._connection())
        except sqlite3.DatabaseError as fault:
            raise UnavailableError(f"{self._path} cannot be used: {fault}.") from None

    def _connection(self) -> sqlite3.Connection:
        held = self._open
        try:
            inode = os.stat(self._path).st_ino
        except FileNotFoundError:
            inode = 0
        if held.connection is None or held.inode != inode:
            self.close()
            held.connection = self._connect()
            held.inode = os.stat(self._path).st_ino
            held.stamps = {}
            held.seen = {}
        return held.connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            with _transaction(connection):
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif version != FORMAT:
            connection.close()
            message = f"{self._path} was written by another version of gitmem."
            raise UnavailableError(message, hint="It is derived: delete it, and it is made anew.")
        return connection

    # -- catching up -------------------------------------------------------------------------

    def refresh(self, repo: str, repository: Repository, zone: tzinfo) -> None:
        """Catch up with every branch of the repository."""
        self._run(lambda connection: self._refresh(connection, repo, repository, zone))

    def _stamps(self, connection: sqlite3.Connection, repo: str) -> dict[str, Oid]:
        stamps = self._open.stamps
        if repo not in stamps:
            stamps[repo] = dict(connection.execute("SELECT epoch, tip FROM stamp WHERE repo = ?", (repo,)))
        return stamps[repo]

    def _refresh(
        self, connection: sqlite3.Connection, repo: str, repository: Repository, zone: tzinfo
    ) -> None:
        stamps = self._stamps(connection, repo)
        now = repository.refs.heads()
        if self._open.seen.get(repo) is now:
            return
        heads = {epoch: tip for epoch, tip in now.items() if epoch != MAIN}
        if heads == stamps:
            self._open.seen[repo] = now
            return
        stale = {epoch: tip for epoch, tip in heads.items() if stamps.get(epoch) != tip}
        unknown = [epoch for epoch in stale if epoch not in stamps]
        if unknown:
            repository.learn_removals({epoch: stale[epoch] for epoch in unknown})
        with _transaction(connection):
            for epoch in stamps.keys() - heads.keys():
                connection.execute("DELETE FROM leaf WHERE repo = ? AND epoch = ?", (repo, epoch))
                connection.execute("DELETE FROM stamp WHERE repo = ? AND epoch = ?", (repo, epoch))
            for epoch, tip in stale.items():
                view = repository.view_at(tip)
                leaves = _changed(repository, view, stamps.get(epoch))
                if leaves is None:
                    connection.execute("DELETE FROM leaf WHERE repo = ? AND epoch = ?", (repo, epoch))
                    leaves = _all_leaves(repository, view)
                self._put(connection, repo, epoch, view, repository, zone, leaves)
        stamps.clear()
        stamps.update(heads)

    def advance(
        self,
        repo: str,
        repository: Repository,
        zone: tzinfo,
        epoch: str,
        base: Oid | None,
        leaves: Iterable[LeafName],
    ) -> None:
        """Note what an own commit on top of `base` did to `leaves`, without comparing trees."""

        def work(connection: sqlite3.Connection) -> None:
            stamps = self._stamps(connection, repo)
            view = repository.view(epoch)
            if view is None or stamps.get(epoch) != base:
                return
            with _transaction(connection):
                self._put(connection, repo, epoch, view, repository, zone, leaves)
            stamps[epoch] = view.tip

        self._run(work)

    def _put(
        self,
        connection: sqlite3.Connection,
        repo: str,
        epoch: str,
        view: View,
        repository: Repository,
        zone: tzinfo,
        leaves: Iterable[LeafName],
    ) -> None:
        rows, gone = [], []
        for leaf in leaves:
            row = _describe(repository, view, leaf, zone)
            if row is None:
                gone.append((repo, epoch, leaf.kind, leaf.name))
            else:
                rows.append((repo, epoch, leaf.kind, leaf.name, *row))
        connection.executemany(
            "DELETE FROM leaf WHERE repo = ? AND epoch = ? AND kind = ? AND name = ?", gone
        )
        connection.executemany("INSERT OR REPLACE INTO leaf VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        connection.execute("INSERT OR REPLACE INTO stamp VALUES (?, ?, ?)", (repo, epoch, view.tip))

    def forget(self, repo: str) -> None:
        """Drop every row of a repository that is gone."""

        def work(connection: sqlite3.Connection) -> None:
            with _transaction(connection):
                connection.execute("DELETE FROM leaf WHERE repo = ?", (repo,))
                connection.execute("DELETE FROM stamp WHERE repo = ?", (repo,))
            self._open.stamps.pop(repo, None)

        self._run(work)

    # -- asking ------------------------------------------------------------------------------

    def _select(self, where: str, *values: Any, index: str = "") -> list[Row]:
        # SQLite would rather walk the primary key: without ANALYZE it cannot know better.
        by = f"INDEXED BY {index}" if index else ""
        query = f"SELECT {_COLUMNS} FROM leaf {by} WHERE {where}"  # noqa: S608 - all parts are ours
        return self._run(lambda connection: [_row(found) for found in connection.execute(query, values)])

    def turn(self, repo: str, turn_id: str, role: str | None) -> Row | None:
        """The leaf of that turn and role, tombstones included."""
        where = "repo = ? AND turn_id = ? AND role IS ?"
        rows = self._select(where, repo, turn_id, role, index="leaf_turn")
        return min(rows, key=lambda row: (row.at, row.seq), default=None)

    def find(self, repo: str, epoch: str, leaf: LeafName) -> Row | None:
        """The leaf of that epoch and name, whatever became of it."""
        where = "repo = ? AND epoch = ? AND kind = ? AND name = ?"
        rows = self._select(where, repo, epoch, leaf.kind, leaf.name)
        return rows[0] if rows else None

    def same_second(self, repo: str, second: str) -> list[Row]:
        """Raw leaves of any epoch whose names begin with that second."""
        where = "repo = ? AND kind = 'raw' AND name >= ? AND name < ?"
        return self._select(where, repo, second, second + "~", index="leaf_name")

    def released(self, repo: str, leaf: LeafName) -> Row | None:
        """A tombstone of that name, in whatever epoch."""
        where = "repo = ? AND kind = ? AND name = ? AND state = 'released' LIMIT 1"
        rows = self._select(where, repo, leaf.kind, leaf.name, index="leaf_name")
        return rows[0] if rows else None

    def count(self, repo: str) -> dict[str, dict[str, int]]:
        """Living leaves per epoch and kind."""
        query = """SELECT epoch, kind, COUNT(*) FROM leaf
            WHERE repo = ? AND state != 'released' GROUP BY epoch, kind"""
        found: dict[str, dict[str, int]] = {}
        for epoch, kind, number in self._run(
            lambda connection: connection.execute(query, (repo,)).fetchall()
        ):
            found.setdefault(epoch, {})[kind] = number
        return found

    def timeline(
        self, repo: str, since: int | None, until: int | None, before: str | None, limit: int
    ) -> list[Row]:
        """Living leaves, newest first: `since` ≤ time < `until`, after the row of cursor `before`."""
        where = ["repo = ?", "state != 'released'"]
        values: list[Any] = [repo]
        if since is not None:
            where.append("at >= ?")
            values.append(since)
        if until is not None:
            where.append("at < ?")
            values.append(until)
        if before is not None:
            where.append("(at, seq, epoch, kind, name) < (?, ?, ?, ?, ?)")
            values.extend(parse_cursor(before))
        order = " ORDER BY at DESC, seq DESC, epoch DESC, kind DESC, name DESC LIMIT ?"
        return self._select(" AND ".join(where) + order, *values, limit, index="leaf_time")


def _changed(repository: Repository, view: View, old_tip: Oid | None) -> set[LeafName] | None:
    """Leaves whose blob or sidecar differs from an earlier commit; None where that is gone."""
    if old_tip is None:
        return None
    try:
        old = repository.view_at(old_tip)
        changed: set[LeafName] = set()
        for kind in KINDS:
            changed |= {
                LeafName(kind, name) for name, _ in old.names(kind).items() ^ view.names(kind).items()
            }
            changed |= {leaf for leaf, _ in old.sidecar_ids(kind).items() ^ view.sidecar_ids(kind).items()}
    except CorruptError:
        return None
    return changed


def _all_leaves(repository: Repository, view: View) -> set[LeafName]:
    found: set[LeafName] = set()
    for kind in KINDS:
        found |= {LeafName(kind, name) for name in view.names(kind)}
        found |= view.sidecar_ids(kind).keys()
    for path in repository.removals_of(view.tip):
        folder, _, name = path.partition("/")
        found.add(LeafName(check_kind(folder), name))
    return found


def _describe(repository: Repository, view: View, leaf: LeafName, zone: tzinfo) -> tuple[Any, ...] | None:
    """at, seq, state, turn_id, role of a leaf; None where there is none, or its name is no leaf's."""
    if not is_name(leaf.kind, leaf.name):
        return None
    standing = look(repository, view, leaf, lenient=True)
    if standing.state is None:
        return None
    sidecar = standing.sidecar
    seq = leaf_order(leaf.name)[1] if leaf.kind == "raw" else 0
    stamp = sidecar.ts if sidecar else None
    if leaf.kind == "hldp" and not stamp and standing.shown is not None:
        stamp = said_at(leaf, sidecar, repository.blob(standing.shown), zone)
    at = times.seconds_of(stamp, zone) if stamp else None
    if at is None:
        at = times.seconds(times.from_name(leaf.name[:15], zone)) if leaf.kind == "raw" else 0
    return (
        at,
        seq,
        standing.state.value,
        sidecar.turn_id if sidecar else None,
        sidecar.role if sidecar else None,
    )
