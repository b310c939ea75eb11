"""The floors of the house: who may import whom, enforced on the source text."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import pkgutil
from pathlib import Path

import networkx as nx

import neural_flow
from neural_flow import drawing, records

ROOT = Path(neural_flow.__file__).parent

# The one table, from docs/explanation/architecture.md: unit -> (floor, third-party packages allowed).
TORCH = {"torch", "numpy"}
UNITS: dict[str, tuple[float, set[str]]] = {
    "errors": (0.0, set()),
    "registry": (0.1, set()),
    "git_files": (0.1, set()),
    "figures": (0.1, set()),
    "records": (0.2, {"numpy"}),
    "drawing": (0.3, {"numpy"}),
    "graph_checks": (0.3, set()),
    "graph_json": (0.4, {"numpy"}),
    "theme": (0.5, {"numpy"}),
    "text_metrics": (0.6, {"numpy", "fontTools"}),
    "torch_private": (1.0, TORCH),
    "nested": (1.1, TORCH),
    "module_calls": (1.2, TORCH),
    "hooks": (1.5, TORCH),
    "probe": (1.5, TORCH),
    "saved_tensors": (1.5, TORCH),
    "summaries": (1.5, TORCH),
    "models": (2.0, {"torch", "numpy", "safetensors", "PIL", "torchvision", "timm", "transformers"}),
    "capture": (2.0, TORCH),
    "stages": (2.0, {"networkx", "numpy"}),
    "topology": (2.0, {"networkx", "numpy"}),
    "diagram": (2.0, {"networkx", "numpy"}),
    "layout": (2.0, {"networkx", "numpy"}),
    "diff": (2.0, {"networkx", "numpy"}),
    "scene": (2.0, {"numpy"}),
    "export": (2.0, {"PIL", "numpy"}),
    "why": (2.0, {"networkx"}),
    "graph_networkx": (2.0, {"networkx"}),
    "diff_figure": (2.1, set()),
    "options": (3.0, {"torch"}),
    "checks": (3.1, {"torch"}),
    "page_fit": (3.05, set()),
    "results": (3.1, {"networkx", "numpy"}),
    "pipeline": (3.2, {"torch", "numpy"}),
    "build": (4.0, {"torch", "numpy"}),
    "costs": (4.0, {"torch", "numpy"}),
    "testing": (4.0, {"torch", "numpy"}),
    "cli": (5.0, {"typer", "rich", "click"}),
    "__init__": (9.0, set()),
    "__main__": (9.0, set()),
}
# Files that may import more than their unit.
EXTRA: dict[str, set[str]] = {
    "topology/fx.py": {"torch"},
    "topology/export.py": {"torch"},
    "topology/pieces.py": {"torch"},
    "export/mpl/": {"matplotlib", "fontTools"},
}
# Instruments that a pass on the same or a higher floor may use, beyond what floors allow.
SUMMARIES_USERS = {"scene", "capture"}
LAZY_IMPORT_ALLOWED = ("__init__.py", "cli/app.py", "export/mpl/", "models/")
STDLIB = set(__import__("sys").stdlib_module_names)


@functools.cache
def source_files() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "sample_models" not in path.parts)


def unit_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports_of(path: Path) -> list[tuple[str, bool, int]]:
    """Return (dotted name, is inside a function, line) of each import."""
    tree = ast.parse(path.read_text())
    inside = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.walk(node)
    }
    found: list[tuple[str, bool, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in inside, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            module = str(node.module)
            is_package_import = module == "neural_flow" or module in packages()
            found += [(name if is_package_import else module, id(node) in inside, node.lineno) for name in names]
    return found


@functools.cache
def packages() -> set[str]:
    return {module_name(path) for path in source_files() if path.name == "__init__.py"}


def test_every_unit_stands_on_a_floor():
    assert {unit_of(path) for path in source_files()} <= set(UNITS)


def test_imports_point_to_lower_floors_and_never_to_siblings():
    wrong: list[str] = []
    for path in source_files():
        unit = unit_of(path)
        floor, allowed = UNITS[unit]
        if unit in ("__init__", "__main__"):
            continue
        for name, _, line in imports_of(path):
            top = name.split(".")[0]
            if top == "neural_flow":
                parts = name.split(".")
                other = parts[1] if len(parts) > 1 and parts[1] in UNITS else "__init__"
                if other == unit or name == "neural_flow.__version__":
                    continue
                if not UNITS[other][0] < floor:
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: {unit} imports {other}")
            elif top not in STDLIB and top != "__future__":
                relative = str(path.relative_to(ROOT))
                extra = {pkg for prefix, pkgs in EXTRA.items() if relative.startswith(prefix) for pkg in pkgs}
                if top not in allowed | extra:
                    wrong.append(f"{relative}:{line}: third party {top}")
    assert not wrong, "\n".join(wrong)


def test_files_import_modules_and_never_their_own_package_root():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in source_files()
        for name, _, line in imports_of(path)
        if path.name != "__init__.py" and name == ".".join(module_name(path).split(".")[:-1]) != "neural_flow"
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_inside_a_function_but_for_the_four_exceptions():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in source_files()
        for name, is_inside, line in imports_of(path)
        if is_inside and not str(path.relative_to(ROOT)).startswith(LAZY_IMPORT_ALLOWED)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_import_cycle_between_files_or_units():
    files = {module_name(path): path for path in source_files()}
    graph: nx.DiGraph[str] = nx.DiGraph()
    units: nx.DiGraph[str] = nx.DiGraph()
    for name, path in files.items():
        for target, is_inside, _ in imports_of(path):
            home = target if target in files else target.rpartition(".")[0]
            if home in files and home != name and not is_inside:
                graph.add_edge(name, home)
                if unit_of(path) != unit_of(files[home]):
                    units.add_edge(unit_of(path), unit_of(files[home]))
    assert list(nx.simple_cycles(graph)) == []
    assert list(nx.simple_cycles(units)) == []


def test_files_and_functions_stay_short():
    wrong: list[str] = []
    for path in source_files():
        text = path.read_text()
        if (count := len(text.splitlines())) > 450:
            wrong.append(f"{path.relative_to(ROOT)}: {count} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and code_lines(node, text) > 60:
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {code_lines(node, text)} lines")
    assert not wrong, "\n".join(wrong)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> int:
    """Count the lines of the body that hold code: no docstring, no comment, no blank line, no signature."""
    body = function.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    if not body:
        return 0
    lines = text.splitlines()[body[0].lineno - 1 : function.end_lineno]
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))


def test_records_are_frozen_and_hold_no_tensor():
    for module in (records, drawing):
        for name, item in vars(module).items():
            if dataclasses.is_dataclass(item) and isinstance(item, type) and item.__module__ == module.__name__:
                assert item.__dataclass_params__.frozen, name  # type: ignore[attr-defined]
                assert not hasattr(item, "__dict__") or "__slots__" in vars(item), name
                for field in dataclasses.fields(item):
                    kinds = str(field.type).replace("TensorMeta", "").replace("TensorStats", "")
                    assert "Tensor" not in kinds, (name, field.name)
                    assert "nn.Module" not in kinds, (name, field.name)


def test_every_submodule_imports_and_no_public_name_equals_one():
    names = {info.name for info in pkgutil.iter_modules(neural_flow.__path__)}  # `neural_flow.<name>` has one meaning
    for info in pkgutil.walk_packages(neural_flow.__path__, "neural_flow."):
        if info.name != "neural_flow.__main__" and "sample_models" not in info.name:
            importlib.import_module(info.name)
    assert not set(neural_flow.__dir__()) & names
    for name in neural_flow.__dir__():
        assert getattr(neural_flow, name) is not None
