"""A home: a folder of persona repositories, opened once.

HOME/settings.yaml       settings
HOME/index.db            derived: the catalog
HOME/state.db            local: places exported to
HOME/ym001/zy001.git     the memory of YM001/ZY001
HOME/ym001/zy001.wiki.git  its human pages
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gitmem import host
from gitmem import manifest as manifests
from gitmem import settings as settings_module
from gitmem.catalog import Catalog
from gitmem.errors import (
    ConflictError,
    GitmemError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from gitmem.local import FILE_NAME as STATE_FILE
from gitmem.local import LocalState
from gitmem.manifest import Manifest, alias_key, check_human
from gitmem.memory import Clock, Memory
from gitmem.receive import install
from gitmem.settings import Settings
from gitmem.store.objects import Person
from gitmem.store.repository import MAIN, Repository
from gitmem.tracepath import PersonaName

CATALOG_FILE = "index.db"
_README = """# {name}

The memory of the persona {persona}, kept by gitmem. Each branch other than `main` is an epoch;
`raw/` holds conversation text, `hldp/` records, `meta/` what became known about them later.
"""


class Persona(str):
    """A persona's name `ROOT/PERSONA`, with its manifest."""

    __slots__ = ("manifest",)
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self)

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.manifest.aliases

    @property
    def human(self) -> str | None:
        return self.manifest.human

    @property
    def timezone(self) -> str:
        return self.manifest.timezone

    @property
    def epoch(self) -> str | None:
        return self.manifest.epoch

    def as_dict(self) -> dict[str, Any]:
        return {
            "persona": str(self),
            "aliases": list(self.aliases),
            "human": self.human,
            "timezone": self.timezone,
            "epoch": self.epoch,
        }


class Home:
    """All personas of one folder. Use it as a context manager, or call `close`."""

    def __init__(self, path: str | Path, *, clock: Clock | None = None) -> None:
        """Open a home.

        Args:
            clock: Gives the present time, with its offset; the system's by default.

        Raises:
            UnavailableError: there is no home at that path.
            UsageError: its settings are malformed.
        """
        self.path = Path(path).absolute()
        data = host.read_bytes(str(self.path / settings_module.FILE_NAME))
        if data is None:
            raise UnavailableError(
                f"there is no gitmem home at {self.path}.", hint=f"Run gitmem init {self.path}."
            )
        self.settings = settings_module.parse(data, str(self.path / settings_module.FILE_NAME))
        self._clock = clock or host.system_clock
        self._catalog = Catalog(str(self.path / CATALOG_FILE))
        self.local = LocalState(str(self.path / STATE_FILE))
        self._memories: dict[str, Memory] = {}

    @classmethod
    def init(cls, path: str | Path, *, clock: Clock | None = None, settings: Settings | None = None) -> Home:
        """Make a home; one that is there already is opened as it is.

        Raises:
            UnavailableError: the folder cannot be made.
        """
        folder = Path(path).absolute()
        try:
            host.make_private_folder(folder)
        except OSError as fault:
            raise UnavailableError(f"{folder} cannot be made: {fault.strerror}.") from None
        file = folder / settings_module.FILE_NAME
        if host.read_bytes(str(file)) is None:
            host.write_durable(str(file), settings_module.dump(settings or Settings()), 0o600)
        return cls(folder, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files; the home can be used again and reopens what it needs."""
        for memory in self._memories.values():
            memory.repository.close()
        self._memories.clear()
        self._catalog.close()

    # -- personas ----------------------------------------------------------------------------

    def add_persona(
        self,
        name: str,
        *,
        aliases: Iterable[str] = (),
        human: str | None = None,
        timezone: str = "UTC",
    ) -> Memory:
        """Make a persona and its repository; the persona's memory.

        Raises:
            UsageError: a malformed name, alias, human or time zone.
            ConflictError: the persona, or one of the aliases, is taken.
        """
        parsed = PersonaName.parse(name)
        if isinstance(aliases, str):
            raise UsageError("aliases must be a list of names, not one text.")
        manifest = manifests.check(
            Manifest(
                root=parsed.root,
                persona=parsed.persona,
                timezone=timezone,
                human=None if human is None else check_human(human),
                aliases=tuple(dict.fromkeys(aliases)),
            )
        )
        return self.create(manifest)

    def create(self, manifest: Manifest) -> Memory:
        """Make the repository of a manifest; see `add_persona`."""

        def fill(repository: Repository) -> None:
            who = Person("gitmem", "gitmem@localhost.invalid", self._clock())
            files = {
                manifests.FILE_NAME: manifests.dump(manifest),
                "README.md": _README.format(name=manifest.name, persona=manifest.persona).encode(),
            }
            repository.commit(MAIN, files, f"persona {manifest.name}\n", base=None, author=who, committer=who)

        with self._lock():
            self.check_free(manifest)
            self._make(manifest.name.key, fill)
        return self.persona(manifest.name)

    def take(self, name: str, fill: Callable[[Repository], None]) -> Memory:
        """Make a persona of what `fill` brings into an empty repository: whole, or not at all.

        Raises:
            UsageError: a malformed name.
            ConflictError: the persona, or one of its aliases, is taken.
            RefusedError: it is another persona that came.
        """
        parsed = PersonaName.parse(name)

        def checked(repository: Repository) -> None:
            fill(repository)
            data = repository.file(MAIN, manifests.FILE_NAME)
            if data is None:
                raise RefusedError(f"no persona {parsed} came: main has no {manifests.FILE_NAME}.")
            manifest = manifests.parse(data, manifests.FILE_NAME)
            if manifest.name.key != parsed.key:
                raise RefusedError(f"the persona there is {manifest.name}, not {parsed}.")
            self.check_free(manifest)

        with self._lock():
            self.check_free(Manifest(root=parsed.root, persona=parsed.persona))
            self._make(parsed.key, checked)
        return self.persona(parsed)

    def _lock(self) -> AbstractContextManager[None]:
        return host.locked(str(self.path / "gitmem.lock"), self.settings.lock_seconds)

    def _make(self, key: str, fill: Callable[[Repository], None]) -> None:
        """Make a repository beside its place, fill it, and give it its name."""
        folder = self.path / f"{key}.git"
        draft = folder.with_name(f".new-{folder.name}")
        if draft.exists():
            host.remove_tree(draft)
        draft.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            repository = Repository.create(str(draft), self.settings.lock_seconds)
            fill(repository)
            repository.close()
            install.place(str(draft), host.interpreter())
            draft.rename(folder)
        except GitmemError:
            host.remove_tree(draft)
            if not host.list_folder(str(draft.parent)):
                draft.parent.rmdir()
            raise

    def check_free(self, manifest: Manifest) -> None:
        """Raise `ConflictError` if the persona, or one of its aliases, is taken."""
        taken = {alias_key(alias): other for other in self.personas() for alias in (*other.aliases, other)}
        if manifest.name.key in {other.lower() for other in self.personas()}:
            raise ConflictError(
                f"{manifest.name} exists already.", hint="Choose another name, or use it as it is."
            )
        if (self.path / f"{manifest.name.key}.git").exists():
            message = f"{self.path / manifest.name.key}.git exists and holds no gitmem persona."
            raise ConflictError(message, hint="Move it away, or choose another name.")
        for alias in manifest.aliases:
            if alias_key(alias) in taken:
                raise ConflictError(f"the alias {alias!r} belongs to {taken[alias_key(alias)]}.")

    def personas(self) -> list[Persona]:
        """Every persona of this home, by name. Other repositories in the folder are left alone.

        Raises:
            UnavailableError: a folder cannot be read; nothing is taken for absent.
        """
        found = []
        for root in host.list_folder(str(self.path)):
            place = self.path / root
            if root.startswith(".") or not place.is_dir():
                if not place.exists():
                    host.check_no_dead_link(str(place))
                continue
            for entry in host.list_folder(str(self.path / root)):
                if entry.startswith(".") or not entry.endswith(".git") or entry.endswith(".wiki.git"):
                    continue
                memory = self._open(f"{root}/{entry.removesuffix('.git')}")
                if memory is not None:
                    persona = Persona(memory.name)
                    persona.manifest = memory.manifest
                    found.append(persona)
        return found

    def persona(self, name_or_alias: str) -> Memory:
        """A persona's memory, by `ROOT/PERSONA` or by alias; case does not matter.

        Raises:
            UsageError: a malformed name.
            NotFoundError: there is no such persona.
        """
        if "/" in name_or_alias:
            memory = self._open(PersonaName.parse(name_or_alias).key)
            if memory is not None:
                return memory
            raise NotFoundError(
                f"there is no persona {name_or_alias}.", hint="gitmem persona list shows those here."
            )
        wanted = alias_key(name_or_alias)
        for persona in self.personas():
            if any(alias_key(alias) == wanted for alias in persona.aliases):
                return self.persona(persona)
        shown = name_or_alias[:80]
        raise NotFoundError(
            f"there is no persona with the alias {shown!r}.", hint="gitmem persona list shows those here."
        )

    def _open(self, key: str) -> Memory | None:
        """The memory in a repository; None where there is no repository, or it is not a persona's."""
        if key in self._memories:
            return self._memories[key]
        folder = self.path / f"{key}.git"
        if not folder.is_dir():
            self._check_readable(folder)
            return None
        repository = Repository(str(folder), self.settings.lock_seconds)
        if not repository.refs.all() and repository.refs.head(MAIN) is None:
            return None
        try:
            memory = Memory(
                repository, catalog=self._catalog, local=self.local, clock=self._clock, settings=self.settings
            )
        except NotFoundError:
            return None
        self._memories[key] = memory
        return memory

    def _check_readable(self, folder: Path) -> None:
        """Raise where a folder on the way cannot be read: absence must be seen, not guessed."""
        for place in (self.path, folder.parent, folder):
            host.check_folder(str(place))
        host.list_folder(str(folder.parent))

    def drop(self, name: str) -> None:
        """Remove a persona's repository with everything in it. For scratch personas only."""
        key = PersonaName.parse(name).key
        memory = self._memories.pop(key, None)
        if memory is not None:
            memory.repository.close()
        folder = self.path / f"{key}.git"
        if folder.is_dir():
            host.remove_tree(folder)
            self._catalog.forget(key)
        if folder.parent.is_dir() and not host.list_folder(str(folder.parent)):
            folder.parent.rmdir()
