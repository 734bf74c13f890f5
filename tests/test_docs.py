"""The documentation says what the code does: examples are run, and nothing is left out."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import click
import pytest

import gitmem
from gitmem import errors
from gitmem.cli import cli
from gitmem.leaves import Retrieval
from gitmem.manifest import Manifest
from gitmem.records import Record
from gitmem.settings import Settings
from gitmem.sidecar import Sidecar

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
INSTALL = "python3 -m venv"


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def section(text: str, title: str) -> str:
    """The part of a page under the heading `title`, without it; empty where there is none."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


# -- the command line -------------------------------------------------------------------------


def commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


COMMANDS = dict(commands(cli, "gitmem"))
SHARED = {"--home", "--json", "--help", "-h", "--version"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_cli_command_is_documented_with_its_options_and_exits(name: str) -> None:
    part = section(read("docs/cli.md"), name)
    assert part, f"docs/cli.md lacks '## {name}'"
    options = {
        option
        for param in COMMANDS[name].params
        if isinstance(param, click.Option)
        for option in (*param.opts, *param.secondary_opts)
    }
    missing = [option for option in sorted(options - SHARED) if not re.search(rf"`{option}\b", part)]
    assert not missing, f"'{name}' in docs/cli.md lacks {missing}"
    assert "JSON:" in part or "JSON of" in part, f"'{name}' in docs/cli.md does not tell its JSON keys"
    assert "Exits:" in part, f"'{name}' in docs/cli.md does not tell its exit codes"


def test_cli_page_names_no_command_that_is_not_there() -> None:
    titles = set(re.findall(r"^## (gitmem .*)$", read("docs/cli.md"), re.MULTILINE))
    assert titles == set(COMMANDS)


def test_cli_shared_options_are_documented() -> None:
    part = section(read("docs/cli.md"), "Options of every command")
    assert not [option for option in sorted(SHARED) if f"`{option}" not in part]


def test_cli_commands_and_options_have_help() -> None:
    assert not [name for name, command in COMMANDS.items() if not command.help]
    options = [
        (name, param)
        for name, command in COMMANDS.items()
        for param in command.params
        if isinstance(param, click.Option)
    ]
    assert not [f"{name} {option.opts[0]}" for name, option in options if not option.help]


def test_cli_page_names_every_key_of_an_answer() -> None:
    part = section(read("docs/cli.md"), "gitmem trace")
    assert not [key for key in Retrieval._fields if f"`{key}`" not in part]


# -- errors -----------------------------------------------------------------------------------


def error_classes(base: type[errors.GitmemError] = errors.GitmemError) -> list[type[errors.GitmemError]]:
    below = [found for each in base.__subclasses__() for found in error_classes(each)]
    return [base, *below]


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
@pytest.mark.parametrize("page", ["README.md", "docs/cli.md"])
def test_error_is_documented_with_its_exit_code(error: type[errors.GitmemError], page: str) -> None:
    rows = re.findall(r"^\| (\d+) \|(.*)$", section(read(page), "Exit codes").replace("`", ""), re.MULTILINE)
    mine = [code for code, rest in rows if re.search(rf"\b{error.__name__}\b", rest)]
    assert mine == [str(error.exit_code)], (
        f"{page}: {error.__name__} must stand in the row of {error.exit_code}"
    )
    assert any(re.search(rf"\b{error.code}\b", rest) for code, rest in rows if code == mine[0])


def test_every_error_stands_in_the_tree_drawn_in_errors() -> None:
    assert not [error.__name__ for error in error_classes() if error.__name__ not in (errors.__doc__ or "")]


# -- the format -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "heading"),
    [
        (Settings, "### settings.yaml"),
        (Manifest, "### Manifest: `gitmem.yaml`"),
        (Sidecar, "### Sidecar: `meta/KIND/STEM.yaml`"),
        (Record, "## Record: `hldp/mem_….json`"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_format_page_has_exactly_the_fields(kind: type, heading: str) -> None:
    page = read("docs/format.md")
    assert heading in page
    table = re.match(r".*?(\|.*?)\n\n", page.split(heading, 1)[1], re.DOTALL)
    assert table is not None
    cells = [line.split("|")[1] for line in table[1].splitlines()[2:]]
    documented = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert documented == {f.name for f in fields(kind)} - {"extra"}


def test_format_page_has_the_defaults_of_settings() -> None:
    page = read("docs/format.md")
    for field in fields(Settings):
        shown = str(field.default).lower()
        assert f"| `{field.name}` | `{shown}` |" in page


# -- the code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in gitmem.__all__ if not name.startswith("__")])
def test_public_name_has_a_docstring_of_its_own(name: str) -> None:
    doc = getattr(gitmem, name).__doc__ or ""
    assert doc.strip()
    assert not doc.startswith(f"{name}("), "the docstring is the one that dataclass makes up"


def layers() -> list[str]:
    """Every module that docs/architecture.md draws, lowest first, left before right."""
    drawing = blocks(section(read("docs/architecture.md"), "Layers"), "")[0]
    found: list[str] = []
    for line in drawing.splitlines():
        package, colon, names = line.partition("#")[0].rpartition(":")
        found += [f"{package}.{name}" if colon else name for name in names.split()]
    return found


def modules() -> dict[str, Path]:
    package = ROOT / "gitmem"
    files = (path for path in package.rglob("*.py") if not path.stem.startswith("__"))
    return {".".join(path.relative_to(package).with_suffix("").parts): path for path in files}


def imports(path: Path) -> set[str]:
    """Modules of gitmem that a file imports, those for types only left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    skipped = {id(inner) for node in typing for inner in ast.walk(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in skipped:
            source = f"{node.module}."
            for alias in node.names:
                found |= {
                    f"{source}{alias.name}".removeprefix("gitmem."),
                    source.removeprefix("gitmem.")[:-1],
                }
    return found & modules().keys()


def test_architecture_page_draws_every_module() -> None:
    assert sorted(layers()) == sorted(modules())


def test_modules_import_only_from_above_or_left() -> None:
    order = {name: place for place, name in enumerate(layers())}
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        for other in imports(path)
        if order.get(other, -1) >= order.get(name, len(order))
    ]
    assert not wrong


# -- the examples of README -------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A command and what it prints."""

    command: str
    output: str

    @property
    def pattern(self) -> str:
        return ".*?".join(re.escape(part) for part in self.output.split("..."))


def examples(text: str) -> list[Example]:
    found: list[Example] = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Example(command, output))
    return [example for example in found if INSTALL not in example.command]


def lonely_environment(folder: Path) -> dict[str, str]:
    """An environment without anything of the user's."""
    kept = {key: os.environ[key] for key in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if key in os.environ}
    return kept | {
        "HOME": str(folder),
        "GITMEM_HOME": str(folder / "nowhere"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C.UTF-8",
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def run_in_shell(command: str, folder: Path, environment: dict[str, str]) -> str:
    """What a command of a page says, output and errors as they come."""
    done = subprocess.run(
        ["sh", "-c", 'gitmem() { "$PYTHON" -m gitmem "$@"; }\n' + command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.stdout.decode("utf-8")


def test_readme_console_examples_print_what_they_say(tmp_path: Path) -> None:
    environment = lonely_environment(tmp_path)
    shown = examples(read("README.md"))
    assert len(shown) > 10
    for example in shown:
        if example.command.startswith("export "):
            name, _, value = example.command.removeprefix("export ").partition("=")
            environment[name] = value
            continue
        said = run_in_shell(example.command, tmp_path, environment)
        # A text that ends without a newline still ends the line in README.
        assert re.fullmatch(example.pattern, said.rstrip("\n") + "\n" if said else "", re.DOTALL), (
            f"$ {example.command}\n{said}\nREADME says:\n{example.output}"
        )


def test_readme_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks(read("README.md"), "python")
    assert found
    for number, example in enumerate(found, 1):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(example, f"README.md, python block {number}", "exec"), {"__name__": "__main__"})
        assert not said.getvalue()


def test_readme_opens_with_the_two_commands() -> None:
    """Each is complete in itself on a fresh clone."""
    first, second = (block.strip() for block in blocks(read("README.md"), "console")[:2])
    assert first == "$ python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/gitmem demo"
    install = ".venv/bin/pip install -q -e '.[dev]'"
    assert second == f"$ python3 -m venv .venv && {install} && .venv/bin/python -m pytest"


# -- all pages --------------------------------------------------------------------------------

PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "hooks").glob("*.md")])
TEXTS = sorted([*PAGES, ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "gitmem").rglob("*.py")])
FORBIDDEN = [
    r"/(work|root|home/\w+|Users/\w+)/",
    r"\b(coding|AI) assistants?\b",
    r"\bassistant tools?\b",
    r"\bcopilot\b",
    r"\bsandbox",
    r"co-authored-by",
    r"generated (by|with) (an? )?(AI|LLM|model)\b",
    r"\b(TODO|FIXME|XXX)\b",
]


def test_texts_speak_of_gitmem_alone() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in TEXTS
        for pattern in FORBIDDEN
        for match in re.finditer(pattern, path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert not found


def test_links_of_pages_lead_to_files_that_are_there() -> None:
    links = [
        (path, target)
        for path in PAGES
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", without_blocks(path.read_text(encoding="utf-8")))
        if not target.startswith(("https:", "http:"))
    ]
    assert links
    assert not [f"{path.name}: {target}" for path, target in links if not (path.parent / target).exists()]


def test_commands_named_in_pages_exist() -> None:
    """No page sends its reader to a command that is not there."""
    known = {name.split()[1] for name in COMMANDS}
    for path in PAGES:
        named = set(re.findall(r"`gitmem ([a-z]+)\b", path.read_text(encoding="utf-8")))
        assert named <= known, f"{path.name}: {sorted(named - known)}"


def test_glossary_is_in_order_and_has_no_word_twice() -> None:
    words = re.findall(r"^- \*\*(.+?)\*\*:", read("docs/glossary.md"), re.MULTILINE)
    lowered = [word.lower() for word in words]
    assert lowered == sorted(set(lowered))


def test_decisions_are_numbered_and_have_their_parts() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]} ")
        assert all(f"\n## {part}\n" in text for part in ("Context", "Choice", "Alternatives")), page.name
