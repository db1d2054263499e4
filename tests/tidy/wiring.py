"""Rules about dependencies: modules and their importers, limits, errors, import contracts."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from tests.tidy.project import Finding, Project, module_name

LIMITS = "src/tidelock/core/limits.py"
ERRORS = "src/tidelock/core/errors.py"
ROOT_ERROR = "TidelockError"
OWN_SUBJECT_FILE = "tests/tidy/wiring.py"
OWN_SUBJECT = {
    **dict.fromkeys(
        (
            "tidelock.cli.config",
            "tidelock.cli.dashboard",
            "tidelock.cli.demo",
            "tidelock.cli.doctor",
            "tidelock.cli.lock",
            "tidelock.cli.lock_audit",
            "tidelock.cli.lock_run",
            "tidelock.cli.serve",
            "tidelock.cli.services",
            "tidelock.cli.soak",
            "tidelock.cli.sql",
            "tidelock.cli.streamer",
            "tidelock.cli.telemetry",
        ),
        "a command, which the table of commands imports",
    ),
    **dict.fromkeys(
        (
            "tidelock.lock.providers.dynamodb",
            "tidelock.lock.providers.etcd",
            "tidelock.lock.providers.filesystem",
            "tidelock.lock.providers.hive",
            "tidelock.lock.providers.inprocess",
            "tidelock.lock.providers.kubernetes",
            "tidelock.lock.providers.redis",
            "tidelock.lock.providers.statestore",
            "tidelock.lock.providers.storage",
            "tidelock.lock.providers.zookeeper",
        ),
        "a lock backend, imported when the registry is asked for it",
    ),
    **dict.fromkeys(
        (
            "tidelock.storage.azure",
            "tidelock.storage.gcs",
            "tidelock.storage.s3",
        ),
        "a store, imported when a URI has its scheme",
    ),
    **dict.fromkeys(
        (
            "tidelock.streamer.sources.changes",
            "tidelock.streamer.sources.files",
            "tidelock.streamer.sources.jdbc",
            "tidelock.streamer.sources.kafka",
        ),
        "a source, imported when the registry is asked for it",
    ),
    **dict.fromkeys(
        (
            "tidelock.spark.sql.ddl",
            "tidelock.spark.sql.describe",
            "tidelock.spark.sql.insert",
            "tidelock.spark.sql.merge",
        ),
        "the statements of one kind; `execute` dispatches to them",
    ),
    **dict.fromkeys(
        (
            "tidelock.spark.sql.procedures.inspect",
            "tidelock.spark.sql.procedures.services",
        ),
        "the procedures of one kind; `call` collects them",
    ),
    "tidelock.cli.help_pages": "the layout of `--help`, on top of classes of typer",
    "tidelock.dashboard.sections": "pure: what the page shows, as JSON; the watch does the I/O",
    "tidelock.execution.spark.large_write": "batches that do not fit the driver: stages in workers",
    "tidelock.hudi.hfile": "a file format of its own",
    "tidelock.inspect.validate_metadata": "one of the subjects that are validated",
    "tidelock.lock.backoff": "pure arithmetic of waiting; the simulator runs it alone",
    "tidelock.lock.server.http_app": "the HTTP application; the process runs it next to gRPC",
    "tidelock.lock.server.openapi": "data: the OpenAPI document",
    "tidelock.lock.server.shard": "one shard of locks; a component has many",
    "tidelock.lock.server.state": "the pure state of the lock service; the simulator runs it alone",
    "tidelock.operations.planner": "pure; the planner is searched and tested alone",
    "tidelock.streamer.initial_checkpoint": "where a first batch begins; users may name a function",
    "tidelock.streamer.read": "reads a batch and separates malformed records",
}
"""Modules with a single importer in their folder, and why they are separate."""

_MODULE_NAME = re.compile(r"(tidelock|testkit)(\.\w+)+(:\w+)?")


def every_module_is_reached(project: Project) -> Iterator[Finding]:
    """Every module is imported or started by something.

    Imports by tests count only for the test kit.
    """
    inside, outside = set(entry_points(project)), set[str]()
    for path in project.paths(suffix=".py"):
        target = inside if path.startswith("src/") else outside
        target |= {name for name in imported(project, path) if name != module_name(path)}
    for name, path in project.modules().items():
        if path.endswith(("/__init__.py", "/__main__.py")) or name in inside:
            continue
        if "\nif __name__ == " in project.files[path]:
            continue
        if not (path.startswith("testkit/") and name in outside):
            yield Finding(path, 1, "nothing imports it and nothing starts it: wire it or remove it")


def a_module_of_one_importer_has_a_reason(project: Project) -> Iterator[Finding]:
    """A module with a single importer in its folder is merged into it, unless a reason is listed.

    The reasons are in `OWN_SUBJECT`. A reason for a module that no longer exists, or that has other
    importers, is reported as well.
    """
    importers: dict[str, set[str]] = {}
    for name, path in project.modules().items():
        for target in imported(project, path):
            importers.setdefault(target, set()).add(name)
    found = set()
    for name, path in project.modules().items():
        if not path.startswith("src/") or path.endswith("/__init__.py"):
            continue
        users = importers.get(name, set()) - {name}
        folder = name.rpartition(".")[0]
        if len(users) == 1 and next(iter(users)).rpartition(".")[0] == folder:
            found.add(name)
            if name not in OWN_SUBJECT:
                says = f"only {next(iter(users))} imports it: merge them, or give a reason"
                yield Finding(path, 1, says)
    for name in OWN_SUBJECT:
        if OWN_SUBJECT_FILE in project.files and name not in found:
            yield Finding(OWN_SUBJECT_FILE, 1, f"{name} needs no reason any more: remove it")


def no_class_name_is_used_twice(project: Project) -> Iterator[Finding]:
    """Public class names are unique."""
    first: dict[str, str] = {}
    for path in project.paths("src/", ".py"):
        for node in project.tree(path).body:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if node.name in first:
                says = f"{node.name} is a class of {first[node.name]} too: name each by what it is"
                yield Finding(path, node.lineno, says)
            first.setdefault(node.name, path)


def every_limit_is_used(project: Project) -> Iterator[Finding]:
    """Every limit is used."""
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
    """Every error is in the tree in the docstring of core/errors.py."""
    if ERRORS not in project.files:
        return
    drawn = dict(_drawn_tree(ast.get_docstring(project.tree(ERRORS), clean=False) or ""))
    known = {ROOT_ERROR, *drawn}
    defined: set[str] = set()
    others = [p for p in project.paths("src/", ".py") if p != ERRORS]
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
    """A module whose docstring says Pure is covered by an import-linter contract."""
    contracts = _pyproject(project).get("tool", {}).get("importlinter", {}).get("contracts", [])
    held = {name for c in contracts if c.get("id") == "pure" for name in c["source_modules"]}
    for name, path in project.modules().items():
        docstring = ast.get_docstring(project.tree(path)) or ""
        if re.search(r"\bPure\b", docstring) and name not in held:
            yield Finding(path, 1, f'add "{name}" to the contract "pure" in pyproject.toml')


def every_dependency_is_locked(project: Project) -> Iterator[Finding]:
    """Every requirement in pyproject.toml is pinned in requirements.lock, which setup installs."""
    lock = project.files.get("requirements.lock", "")
    locked = {_distribution(line) for line in lock.splitlines() if "==" in line}
    pyproject = _pyproject(project)
    declared = pyproject.get("project", {})
    groups = [
        declared.get("dependencies", []),
        *declared.get("optional-dependencies", {}).values(),
        *pyproject.get("dependency-groups", {}).values(),
    ]
    for name in sorted({_distribution(each) for group in groups for each in group}):
        if name not in locked | {declared.get("name")}:
            yield Finding("requirements.lock", 1, f"{name} is not locked: make lock")


def entry_points(project: Project) -> Iterator[str]:
    """Yield the modules that are started or loaded from outside Python."""
    for target in _pyproject(project).get("project", {}).get("scripts", {}).values():
        yield target.partition(":")[0]
    for path in ("Makefile", *project.paths("scripts/")):
        yield from re.findall(r"-m ((?:tidelock|testkit)[\w.]*)", project.files.get(path, ""))


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
            case ast.Constant(value=str(text)) if _MODULE_NAME.fullmatch(text):
                yield text.partition(":")[0]
            case _:
                pass


def _distribution(requirement: str) -> str:
    """Return the normalized name at the start of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


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
    """Yield each name of an indented tree with its parent ("" for the root)."""
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
