"""Rules about the shape of files: size, names, docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.project import Finding, Project

FILE_LINES_MAX = {"src/": 800, "testkit/": 800, "tests/": 800, "benchmarks/": 800}
FUNCTION_LINES_MAX = 70
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}
ROOT_INIT = "src/tidelock/__init__.py"


def files_are_small(project: Project) -> Iterator[Finding]:
    """A file above the limit should be split by subject."""
    for prefix, lines_max in FILE_LINES_MAX.items():
        for path in project.paths(prefix, ".py"):
            count = len(project.lines(path))
            if count > lines_max:
                yield Finding(path, count, f"{count} lines, at most {lines_max}: split it by noun")


def functions_fit_a_screen(project: Project) -> Iterator[Finding]:
    """A function fits on one screen."""
    for path in project.paths(suffix=".py"):
        for node in ast.walk(project.tree(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                says = f"{node.name} has {count} lines, at most {FUNCTION_LINES_MAX}"
                yield Finding(path, node.lineno, says)


def modules_have_a_subject(project: Project) -> Iterator[Finding]:
    """A module name states a subject; `utils` and the like are refused."""
    for path in project.paths(suffix=".py"):
        for part in PurePosixPath(path).with_suffix("").parts:
            if part.removeprefix("test_").strip("_") in DRAWERS:
                yield Finding(path, 1, f"{part!r} says nothing: name it after what it holds")


def modules_say_what_they_are_for(project: Project) -> Iterator[Finding]:
    """Every module has a docstring whose first line says what it holds."""
    for path in project.paths("src/", ".py"):
        if not ast.get_docstring(project.tree(path)):
            yield Finding(path, 1, "no module docstring: say in a sentence what it is for")


def packages_only_list_names(project: Project) -> Iterator[Finding]:
    """An `__init__.py` only lists names; code lives in modules."""
    for path in project.paths("src/", "__init__.py"):
        for node in project.tree(path).body:
            if not (_lists_names(node) or (path == ROOT_INIT and _loads_lazily(node))):
                yield Finding(path, node.lineno, "logic in __init__.py: move it into a module")


def _lists_names(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case _:
            return False


def _is_alias(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)


def _loads_lazily(node: ast.stmt) -> bool:
    """`import tidelock` must be cheap, so the public package may load its names on demand."""
    match node:
        case ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=[]):
            return all(_lists_names(inner) or _is_alias(inner) for inner in node.body)
        case ast.If(
            test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id="TYPE_CHECKING")), orelse=[]
        ):
            return all(_loads_lazily(inner) for inner in node.body)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.startswith("_")
        case _:
            return False
