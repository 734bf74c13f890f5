"""The wiki beside a persona's memory, exchanged with the wiki beside its remote."""

from __future__ import annotations

from pathlib import Path

from gitmem import host
from gitmem.errors import GitmemError, UnavailableError
from gitmem.places import wiki_folder
from gitmem.store.repository import MAIN, Repository
from gitmem.sync.exchange import Exchange
from gitmem.sync.remotes import Remote
from gitmem.sync.report import WIKI, RemoteReport


def sync_pages(memory_folder: str, remote: Remote, report: RemoteReport) -> None:
    """Exchange the pages; what happened is in the report. A wiki that is not there is no fault.

    Where there is none here and one there, it is made; where there is one here and none there,
    that is noted.
    """
    folder = wiki_folder(Path(memory_folder))
    is_new = not folder.is_dir()
    try:
        if not remote.wire(wiki=True).refs():
            return
    except UnavailableError as fault:
        if not is_new:
            report.branch(WIKI).notes.append(f"not exchanged: {fault.message}")
        return
    draft = folder.with_name(f".new-{folder.name}") if is_new else folder
    if is_new and draft.exists():
        host.remove_tree(draft)
    repository = Repository.create(str(draft)) if is_new else Repository(str(folder))
    try:
        Exchange(repository, remote, report, manifest=None, pages=True).run()
        came = repository.refs.head(MAIN) is not None
    except GitmemError as fault:
        report.branch(WIKI).stopped = f"{fault.message} {fault.hint}".strip()
        came = False
    finally:
        repository.close()
    if not is_new:
        return
    if came:
        draft.rename(folder)
    else:
        host.remove_tree(draft)
