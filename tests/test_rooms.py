"""The rooms of the package: imports go only downwards and in no circle, files and functions stay small, importing is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fusewise

PACKAGE = Path(fusewise.__file__).parent

LINES: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("__init__", "contestant", "onnx_backend", "sweep"),
    ("dynamo", "gradients", "onnxruntime"),
    ("api",),
    ("on_cpu", "on_gpu"),
    ("reporting",),
    ("specializing", "explaining"),
    ("compiling", "comparing"),
    ("sources",),
    ("compiled", "checking", "inspecting", "planning", "optimizing", "selecting", "tuning", "gpu_tuning", "verifying"),
    (
        "options",
        "hosting",
        "measuring",
        "profiling",
        "counting",
        "partitioning",
        "outcomes",
        "choices",
        "decisions",
    ),
    ("making",),
    ("benchmarking",),
    ("runtime",),
    ("codegen",),
    ("lower", "fusion", "select", "accel"),
    ("passes",),
    ("rewrite", "frontend", "zoo"),
    ("ops",),
    ("ir", "trace", "files", "tensors"),
    ("cards", "words"),
    ("errors", "records", "version"),
)
"""Rooms from top to bottom. A room imports itself and lower lines; rooms on one line do not know each other."""

CODEGEN: tuple[tuple[str, ...], ...] = (
    ("assemble",),
    ("choose",),
    ("versions",),
    ("candidates", "legalize"),
    ("families", "gpu"),
    ("cost",),
    ("instructions",),
    ("llvm",),
    ("steps",),
    ("kernel",),
    ("nest",),
    ("packing", "box_routines"),
    ("view",),
    ("target",),
    ("machine",),
)
"""The same within code generation, whose rooms are many."""

LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 500, 80, 7

HEAVY = (
    *("torch", "onnxruntime", "openvino", "llvmlite", "onnx.reference", "transformers", "onnxscript"),
    *("torch_geometric", "safetensors", "pymoo", "ortools", "scipy", "dask", "distributed", "egglog", "z3"),
)
"""Not loaded by `import fusewise`, nor at the top of any module but those below."""

LLVM_ROOMS = ("codegen", "runtime")


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """Every file of the package, parsed once for all tests here."""
    return {path: ast.parse(path.read_text()) for path in sources()}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def line_of(room: str) -> int:
    """The line of a room; every room must have one."""
    found = [i for i, rooms in enumerate(LINES) if room in rooms]
    assert found, f"room {room!r} is not in LINES: say which rooms it may import"
    return found[0]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Modules that are imported anywhere in a file, and where; `from a import b` gives `a.b` too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def known_rooms() -> set[str]:
    return {room_of(path) for path in sources()}


def upward_arrows(path: Path, tree: ast.AST, rooms: set[str]) -> list[str]:
    here = room_of(path)
    found = []
    for module, number in imports(tree):
        parts = module.split(".")
        if parts[0] != "fusewise" or len(parts) < 2 or parts[1] not in rooms or parts[1] == here:
            continue
        if line_of(parts[1]) <= line_of(here):
            found.append(f"{path.relative_to(PACKAGE)}:{number} imports {module}")
    return found


def test_imports_go_only_downwards(trees: dict[Path, ast.Module]) -> None:
    rooms = known_rooms()
    arrows = [arrow for path, tree in trees.items() for arrow in upward_arrows(path, tree, rooms)]
    assert not arrows, "\n".join(sorted(set(arrows)))


@pytest.mark.parametrize(
    "file, code, allowed",
    [
        ("ops/x.py", "from fusewise.ir.graph import Graph", True),
        ("ops/x.py", "from fusewise.passes import pipeline", False),
        ("ops/x.py", "def f():\n    import fusewise.runtime.jit", False),
        ("ops/x.py", "from fusewise import api", False),
        ("zoo/x.py", "from fusewise.frontend.bind import bind", False),
        ("codegen/x.py", "from fusewise.lower.task import Task", True),
        ("lower/x.py", "from fusewise.codegen.target import Target", False),
        ("fusion/x.py", "from fusewise.lower.task import Task", False),
        ("passes/x.py", "import numpy", True),
    ],
)
def test_the_arrow_check_sees(file: str, code: str, allowed: bool) -> None:
    rooms = {room for line in LINES for room in line}
    assert (not upward_arrows(PACKAGE / file, ast.parse(code), rooms)) == allowed


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def needed(tree: ast.AST, known: Mapping[str, Path]) -> set[str]:
    """The modules of the package that a file imports, be it late or for types only."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in names}
    return found.intersection(known)


def circle_in(arrows: Mapping[str, set[str]]) -> list[str]:
    """Modules of which each imports the one behind it, the last the first again; none where there is no circle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_circle_of_files(trees: dict[Path, ast.Module]) -> None:
    known = {name_of(path): path for path in sources()}
    circle = circle_in({name: needed(trees[path], known) for name, path in known.items()})
    assert not circle, " imports ".join(circle)


def test_imports_within_code_generation_go_only_downwards(trees: dict[Path, ast.Module]) -> None:
    lines = {f"fusewise.codegen.{room}": number for number, rooms in enumerate(CODEGEN) for room in rooms}
    known = {name_of(path): path for path in sources()}
    found = []
    for name, path in known.items():
        here = ".".join(name.split(".")[:3])
        if name.startswith("fusewise.codegen."):
            assert here in lines, f"{here} is not in CODEGEN: say what it may import"
            others = {".".join(needs.split(".")[:3]) for needs in needed(trees[path], known)} - {here}
            found += [f"{name} imports {room}" for room in others if lines.get(room, 99) <= lines[here]]
    assert not found, "\n".join(found)


def test_the_circle_check_sees() -> None:
    known = dict.fromkeys(("fusewise", "fusewise.a", "fusewise.a.b", "fusewise.c"), PACKAGE)
    late = ast.parse("if TYPE_CHECKING:\n    from fusewise.a.b import B\ndef f():\n    from fusewise import c, nothing")
    assert needed(late, known) == {"fusewise.a.b", "fusewise.c", "fusewise"}
    assert circle_in({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) in (
        ["a", "b", "c", "a"],
        ["b", "c", "a", "b"],
        ["c", "a", "b", "c"],
    )
    assert not circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_files_are_short() -> None:
    lengths = {path.relative_to(PACKAGE): len(path.read_text().splitlines()) for path in sources()}
    long = [f"{path}: {length} lines" for path, length in lengths.items() if length > LONGEST_FILE]
    assert not long, "\n".join(long)


def test_functions_are_short(trees: dict[Path, ast.Module]) -> None:
    long = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}: {length} lines")
    assert not long, "\n".join(long)


def test_functions_take_few_parameters(trees: dict[Path, ast.Module]) -> None:
    """What goes together is a record. Options of commands are as many as there are."""
    many = []
    for path, tree in trees.items():
        if path.is_relative_to(PACKAGE / "cli"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = len([one for one in given if one.arg != "self"])
                if count > MOST_PARAMETERS:
                    many.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}: {count} parameters")
    assert not many, "\n".join(many)


def test_a_class_name_has_one_meaning(trees: dict[Path, ast.Module]) -> None:
    """No public class name twice in the package, so that a name says what it is wherever it is read."""
    places: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert len(places) > 300
    twice = [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]
    assert not twice, "\n".join(twice)


def test_heavy_packages_are_imported_late(trees: dict[Path, ast.Module]) -> None:
    """At the top of a module only code generation and the runtime name LLVM, and nobody the others."""
    found = []
    for path, tree in trees.items():
        for statement in tree.body:
            for module, number in imports(statement) if isinstance(statement, ast.Import | ast.ImportFrom) else ():
                heavy = next((name for name in HEAVY if module == name or module.startswith(f"{name}.")), None)
                if heavy is not None and not (heavy == "llvmlite" and room_of(path) in LLVM_ROOMS):
                    found.append(f"{path.relative_to(PACKAGE)}:{number} imports {module}")
    assert not found, "\n".join(found)


def test_importing_the_package_pulls_nothing_heavy() -> None:
    script = f"import sys, fusewise; print(*(name for name in {HEAVY!r} if name in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )
    assert not found.stdout.strip()
