"""Rules about what belongs together: modules and their users, limits, errors, contracts."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from tests.tidy.project import Finding, Project, module_name

LIMITS = "src/tidelock/base/limits.py"
ERRORS = "src/tidelock/base/errors.py"
ROOT_ERROR = "TidelockError"


def every_module_is_reached(project: Project) -> Iterator[Finding]:
    """A module nobody imports and nobody starts is dead.

    The test kit is for tests, so their imports count for it, and only for it.
    """
    inside, outside = set(entry_points(project)), set[str]()
    for path in project.paths(suffix=".py"):
        target = inside if path.startswith("src/") else outside
        target |= {name for name in imported(project, path) if name != _own_name(path)}
    for name, path in project.modules().items():
        if path.endswith(("/__init__.py", "/__main__.py")) or name in inside:
            continue
        called = name.startswith("tidelock.testing.") and name in outside
        if not called:
            yield Finding(
                path, 1, "nothing in src/ imports it and nothing starts it: wire it or remove it"
            )


def every_limit_is_used(project: Project) -> Iterator[Finding]:
    """A bound that nothing checks is a promise that nothing keeps."""
    if LIMITS not in project.files:
        return
    used: set[str] = set()
    for path in project.paths("src/", ".py"):
        if path != LIMITS:
            used |= _words(project.tree(path))
    for node in project.tree(LIMITS).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                if name not in used:
                    yield Finding(
                        LIMITS, node.lineno, f"{name} bounds nothing: use it or remove it"
                    )
            case _:
                pass


def every_error_is_in_the_drawn_tree(project: Project) -> Iterator[Finding]:
    """The tree in the docstring of base/errors.py is the one place to learn what can be raised."""
    if ERRORS not in project.files:
        return
    drawn = dict(_drawn_tree(ast.get_docstring(project.tree(ERRORS), clean=False) or ""))
    known = {ROOT_ERROR, *drawn}
    defined: set[str] = set()
    # What the test kit raises is between it and the tests; it is not the product's to explain.
    others = [p for p in project.paths("src/", ".py") if "/testing/" not in p and p != ERRORS]
    for path in [ERRORS, *others]:
        for node in project.tree(path).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            parents = [base.id for base in node.bases if isinstance(base, ast.Name)]
            if not known.intersection(parents) and node.name != ROOT_ERROR:
                continue
            known.add(node.name)
            defined.add(node.name)
            if node.name not in drawn:
                yield Finding(path, node.lineno, f"{node.name} is not in the tree of {ERRORS}")
            elif node.name != ROOT_ERROR and drawn[node.name] not in parents:
                says = f"{node.name} is drawn below {drawn[node.name]}, but derives from {parents}"
                yield Finding(path, node.lineno, says)
    for name in sorted(drawn.keys() - defined):
        yield Finding(ERRORS, 1, f"{name} is drawn in the tree, but no such class exists")


def pure_modules_are_under_contract(project: Project) -> Iterator[Finding]:
    """A module that calls itself Pure is one that import-linter holds to it."""
    contracts = _pyproject(project).get("tool", {}).get("importlinter", {}).get("contracts", [])
    held = {name for c in contracts if c.get("id") == "pure" for name in c["source_modules"]}
    for name, path in project.modules().items():
        docstring = ast.get_docstring(project.tree(path)) or ""
        if re.search(r"\bPure\b", docstring) and name not in held:
            yield Finding(path, 1, f'add "{name}" to the contract "pure" in pyproject.toml')


def every_dependency_is_locked(project: Project) -> Iterator[Finding]:
    """What pyproject.toml asks for, requirements.lock pins; setup installs nothing else."""
    lock = project.files.get("requirements.lock", "")
    locked = {_distribution(line) for line in lock.splitlines() if "==" in line}
    pyproject = _pyproject(project)
    declared = pyproject.get("project", {})
    groups = [
        declared.get("dependencies", []),
        *declared.get("optional-dependencies", {}).values(),
        *pyproject.get("dependency-groups", {}).values(),
    ]
    for name in sorted({_distribution(wanted) for group in groups for wanted in group}):
        if name not in locked | {declared.get("name")}:
            yield Finding("requirements.lock", 1, f"{name} is not locked: make lock")


def entry_points(project: Project) -> Iterator[str]:
    """Yield the modules that something outside Python starts or loads."""
    for target in _pyproject(project).get("project", {}).get("scripts", {}).values():
        yield target.partition(":")[0]
    for path in ("Makefile", *project.paths("scripts/")):
        yield from re.findall(r"-m (tidelock[\w.]*)", project.files.get(path, ""))


def imported(project: Project, path: str) -> Iterator[str]:
    """Yield every dotted name a file imports, also by a string such as "tidelock.x.y:name"."""
    package = (
        module_name(path) if path.endswith("__init__.py") else module_name(path).rpartition(".")[0]
    )
    for node in ast.walk(project.tree(path)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield base
                yield from (f"{base}.{alias.name}" for alias in names)
            case ast.Constant(value=str(text)) if re.fullmatch(r"tidelock(\.\w+)+(:\w+)?", text):
                yield text.partition(":")[0]
            case _:
                pass


def _distribution(requirement: str) -> str:
    """Return the normal form of the name that a requirement begins with."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def _own_name(path: str) -> str:
    return module_name(path) if path.startswith("src/") else ""


def _words(tree: ast.Module) -> set[str]:
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                words.add(word)
            case _:
                pass
    return words


def _drawn_tree(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield each name of an indented tree with the name it hangs below ("" for the root)."""
    above: list[tuple[int, str]] = []
    for line in docstring.splitlines():
        found = re.match(r"( {4,})([A-Z]\w+)", line)
        if found is None:
            continue
        depth = len(found[1])
        while above and above[-1][0] >= depth:
            above.pop()
        yield found[2], above[-1][1] if above else ""
        above.append((depth, found[2]))


def _pyproject(project: Project) -> dict[str, Any]:
    return tomllib.loads(project.files.get("pyproject.toml", ""))
