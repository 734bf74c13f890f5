"""Local state of a home: the short list of facts that git does not carry.

Now: the folders that personas were exported to, so that a release can name them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from gitmem.errors import UnavailableError

FILE_NAME = "state.db"
_SCHEMA = "CREATE TABLE IF NOT EXISTS export (repo TEXT, folder TEXT, at TEXT, PRIMARY KEY (repo, folder))"


class LocalState:
    """`state.db` of one home."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=60)) as connection, connection:
                connection.execute(_SCHEMA)
                yield connection
        except sqlite3.Error as fault:
            raise UnavailableError(
                f"{self._path} cannot be used: {fault}.", hint="Restore it from a backup."
            ) from None

    def add_export(self, repo: str, folder: str, at: str) -> None:
        """Note that a persona was exported to a folder."""
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO export VALUES (?, ?, ?)", (repo, folder, at))

    def drop_export(self, repo: str, folder: str) -> None:
        """Forget a folder that is no more."""
        with self._open() as connection:
            connection.execute("DELETE FROM export WHERE repo = ? AND folder = ?", (repo, folder))

    def exports(self, repo: str) -> list[str]:
        """Folders that a persona was exported to."""
        with self._open() as connection:
            rows = connection.execute("SELECT folder FROM export WHERE repo = ? ORDER BY folder", (repo,))
            return [folder for (folder,) in rows]
