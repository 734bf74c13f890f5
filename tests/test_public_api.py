"""What `import gitmem` offers: complete, documented, and light."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

import gitmem
from gitmem import errors

EXIT_CODES = {
    "UsageError": (2, "usage"),
    "NotFoundError": (1, "not_found"),
    "ConflictError": (3, "conflict"),
    "RefusedError": (4, "refused"),
    "UnavailableError": (5, "unavailable"),
    "CorruptError": (5, "corrupt"),
}
HEAVY = (
    "click", "rich", "dulwich.porcelain", "whoosh", "fastapi", "uvicorn", "jinja2", "mcp", "httpx",
    "markdown_it",
)  # fmt: skip


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def public_members(kind: type) -> dict[str, Any]:
    """Methods and properties that a class of gitmem defines itself."""
    members = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    routine = (property, staticmethod, classmethod)
    return {name: m for name, m in members.items() if inspect.isfunction(m) or isinstance(m, routine)}


def test_all_is_sorted_and_complete() -> None:
    assert gitmem.__all__ == sorted(gitmem.__all__)
    assert len(set(gitmem.__all__)) == len(gitmem.__all__)
    offered = {
        name
        for name, value in vars(gitmem).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith("gitmem")
    }
    assert offered | {"__version__"} == set(gitmem.__all__)


@pytest.mark.parametrize("name", sorted(set(gitmem.__all__) - {"__version__"}))
def test_everything_public_has_a_docstring(name: str) -> None:
    value = getattr(gitmem, name)
    assert (value.__doc__ or "").strip(), name
    own = value.__doc__ or ""
    assert not own.startswith(f"{name}("), f"{name} has only the docstring that dataclass makes"
    for member, found in public_members(value).items():
        shown = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        plain = member in (
            "as_dict",
            "name",
            "aliases",
            "human",
            "timezone",
            "epoch",
            "root",
            "persona",
            "parse",
        )
        documented = bool((shown.__doc__ or "").strip())
        assert documented or plain or isinstance(found, property), f"{name}.{member} has no docstring"


def test_import_is_light() -> None:
    code = "import sys, gitmem; print(' '.join(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    assert "gitmem.memory" in loaded
    assert {name for name in HEAVY if name in loaded} == set()
    assert not {name for name in loaded if name.startswith(("gitmem.cli", "gitmem.importers", "tests"))}


def test_import_says_nothing_and_touches_nothing(tmp_path: Any) -> None:
    before = [path for path in tmp_path.rglob("*") if path.is_file()]
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import gitmem, gitmem.cli"], capture_output=True, cwd=tmp_path
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == before


def test_errors_are_one_documented_tree() -> None:
    known = {kind for kind in subclasses(gitmem.GitmemError) if kind.__module__.startswith("gitmem")}
    assert {kind.__name__ for kind in known} == {*EXIT_CODES, "GitmemError"}
    assert {kind.__name__ for kind in known} <= set(gitmem.__all__)
    for name, (exit_code, code) in EXIT_CODES.items():
        kind = getattr(gitmem, name)
        assert (kind.exit_code, kind.code) == (exit_code, code)
    codes = [kind.code for kind in known]
    assert len(codes) == len(set(codes))
    assert len({exit_code for exit_code, _ in EXIT_CODES.values()}) == 5
    for name, (exit_code, _) in EXIT_CODES.items():
        if name != "CorruptError":
            assert re.search(rf"{name}\b.*exit {exit_code}", errors.__doc__ or ""), name


def test_errors_are_also_what_python_calls_them() -> None:
    twins = {
        gitmem.UsageError: ValueError,
        gitmem.NotFoundError: LookupError,
        gitmem.RefusedError: PermissionError,
        gitmem.UnavailableError: OSError,
        gitmem.CorruptError: gitmem.UnavailableError,
    }
    assert all(issubclass(kind, twin) for kind, twin in twins.items())


def test_error_holds_its_sentence_and_its_hint() -> None:
    for name in EXIT_CODES:
        fault = getattr(gitmem, name)("something is wrong.", hint="Do this.")
        assert (str(fault), fault.message, fault.hint) == (
            "something is wrong.",
            "something is wrong.",
            "Do this.",
        )


def test_the_first_example_runs(tmp_path: Any) -> None:
    example = re.search(r"(?ms)^with gitmem.*\Z", gitmem.__doc__ or "")
    assert example
    code = "import gitmem\n" + example[0]
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path, check=True)
    assert ran.stdout.decode() == "今天下雨了。\n"


def test_version_is_that_of_the_distribution() -> None:
    assert gitmem.__version__ == version("gitmem")
