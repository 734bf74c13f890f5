"""The shape of the code: what a module may know, read off its syntax tree."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gitmem

ROOT = Path(gitmem.__file__).parent
STORE_MAY_IMPORT = {"errors", "tracepath", "states", "sidecar", "yamltext", "times", "report", "host"}
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text("utf-8"), str(path)) for name, path in MODULES.items()}


def is_below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def dotted(node: ast.AST) -> str:
    """`os.environ` of an attribute, `print` of a name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def uses(tree: ast.AST, *names: str) -> list[str]:
    """Where one of the names is used, also as the end of a longer one or imported by `from`."""
    found = []
    for node in ast.walk(tree):
        words = [dotted(node)] if isinstance(node, ast.Attribute | ast.Name) else []
        if isinstance(node, ast.ImportFrom):
            words = [f"{node.module}.{alias.name}" for alias in node.names]
        found += [
            f"{word} in line {getattr(node, 'lineno', '?')}"
            for word in words
            for name in names
            if word == name or word.endswith("." + name)
        ]
    return found


def outside(names: tuple[str, ...], *allowed: str) -> dict[str, list[str]]:
    """Modules outside of `allowed` that use one of the names, and where."""
    found = {name: uses(tree, *names) for name, tree in TREES.items() if not is_below(name, *allowed)}
    return {name: places for name, places in found.items() if places}


def type_checking_only(tree: ast.Module) -> set[ast.AST]:
    """Everything inside `if TYPE_CHECKING:`."""
    blocks = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in dotted(node.test)
    ]
    return {inner for block in blocks for part in block.body for inner in ast.walk(part)}


def inside_functions(tree: ast.Module) -> set[ast.AST]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return {inner for node in ast.walk(tree) if isinstance(node, kinds) for inner in ast.walk(node)}


def imports(name: str, *, at_load: bool = False) -> set[str]:
    """Modules of gitmem that a module imports; `at_load`: only while it is being loaded."""
    tree = TREES[name]
    skipped = type_checking_only(tree) | inside_functions(tree) if at_load else set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else str(node.module))
    return {module for module in found if module in MODULES} - {name}


def functions() -> Iterator[tuple[str, int]]:
    """Every function with the number of lines of its body, the docstring not counted."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]
                yield f"{name}.{node.name}", lines


def test_only_the_command_line_talks() -> None:
    assert outside(("print", "input", "sys.stdout", "sys.stderr", "sys.stdin"), "gitmem.cli") == {}


def test_only_host_and_the_command_line_know_the_environment() -> None:
    names = ("os.environ", "os.getenv", "environ", "getenv", "Path.home", "expanduser", "os.environb")
    assert outside(names, "gitmem.host", "gitmem.cli") == {}


def test_only_host_and_the_command_line_know_the_time() -> None:
    names = (
        "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
        "time.time", "time.monotonic", "time.time_ns", "time.perf_counter", "time.sleep",
    )  # fmt: skip
    assert outside(names, "gitmem.host", "gitmem.cli") == {}


def test_only_host_runs_other_programs() -> None:
    assert outside(("subprocess", "subprocess.run", "subprocess.Popen", "os.system"), "gitmem.host") == {}


@pytest.mark.parametrize(
    ("source", "names", "count"),
    [
        ("import os\nx = os.environ['A']", ("os.environ",), 1),
        ("from os import environ", ("os.environ",), 1),
        ("from datetime import datetime\ndatetime.now()", ("datetime.now",), 1),
        ("import datetime\ndatetime.datetime.now()", ("datetime.now",), 1),
        ("blueprint(1)", ("print",), 0),
        ("print(1)", ("print",), 1),
    ],
)
def test_the_search_can_find(source: str, names: tuple[str, ...], count: int) -> None:
    assert len(uses(ast.parse(source), *names)) == count


def test_no_import_cycles() -> None:
    graph = {  # a package may import its own modules
        name: {module for module in imports(name, at_load=True) if not name.startswith(module + ".")}
        for name in MODULES
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as fault:
        pytest.fail(f"import cycle: {' -> '.join(fault.args[1])}")
    assert order.index("gitmem.errors") < order.index("gitmem.memory") < order.index("gitmem.home")


def test_store_stands_at_the_bottom() -> None:
    for name in (name for name in MODULES if is_below(name, "gitmem.store")):
        others = {module for module in imports(name) if not is_below(module, "gitmem.store")}
        too_high = others - {f"gitmem.{module}" for module in STORE_MAY_IMPORT}
        assert not too_high, f"{name} imports {sorted(too_high)}"


def test_nobody_imports_the_command_line() -> None:
    users = {name for name in MODULES if any(is_below(module, "gitmem.cli") for module in imports(name))}
    assert {name for name in users if not is_below(name, "gitmem.cli")} == {"gitmem.__main__"}


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_docstring_and_a_bearable_length(name: str) -> None:
    assert (ast.get_docstring(TREES[name]) or "").strip(), f"{name} has no docstring"
    lines = len(MODULES[name].read_text("utf-8").splitlines())
    assert lines <= 600, f"{name} has {lines} lines"


def test_functions_are_short() -> None:
    lengths = dict(functions())
    sizes = sorted(lengths.values())
    assert len(sizes) > 200
    longest = sorted(lengths.items(), key=lambda item: -item[1])[:12]
    assert statistics.median(sizes) <= 9
    assert sizes[int(len(sizes) * 0.95)] <= 45, longest
    assert sizes[-1] <= 90, longest


def test_values_do_no_input_or_output() -> None:
    """Modules of pure values know no file, no git, no other library than YAML."""
    pure = ("errors", "tracepath", "states", "manifest", "settings", "sidecar", "fade", "records", "times")
    names = ("open", "os", "pygit2", "dulwich", "sqlite3", "Path")
    check: Callable[[str], list[str]] = lambda name: uses(TREES[f"gitmem.{name}"], *names)  # noqa: E731
    assert {name: check(name) for name in pure if check(name)} == {}
