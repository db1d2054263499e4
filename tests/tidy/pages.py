"""Rules about pages: links resolve, and they describe the current folders and version."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.tidy.project import Finding, Project, without_code_blocks

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(
    r"`((?:src|tests|testkit|docs|specs|scripts|benchmarks|examples|\.ci|\.github)/[\w./*-]*)"
    r"(?:::\w+)?`"
)
_FOLDER_ROW = re.compile(r"\| `([\w./]+)` \| ([\d,]+) \| ([\d,]+) \|")
_PACKAGE_ROW = re.compile(r"\| \*\*package\*\* \| \*\*([\d,]+)\*\* \| \*\*([\d,]+)\*\* \|")
_NOT_INSTALLED = "testkit"
_LINES_TOLERANCE = 0.02
_LINES_OFF_MAX = 25
"""How far the lines of a folder may be off: this many, or the tolerance of a large folder."""


def links_resolve(project: Project) -> Iterator[Finding]:
    """A link inside the project names an existing file, and an existing heading in it."""
    for path in project.paths(suffix=".md"):
        for number, line in _prose(project, path):
            for target in _LINK.findall(line):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, heading = target.partition("#")
                joined = (
                    posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
                    if file
                    else path
                )
                if not _exists(project, joined):
                    yield Finding(path, number, f"{target}: no such file in the project")
                elif heading and heading not in _anchors(project, joined):
                    yield Finding(path, number, f"{target}: {joined} has no such heading")


def named_files_exist(project: Project) -> Iterator[Finding]:
    """A page that names `tests/…` or `src/…` names an existing path."""
    for path in project.paths(suffix=".md"):
        for number, line in _prose(project, path):
            for target in _PATH.findall(line):
                if not _exists(project, target.rstrip("/")):
                    yield Finding(path, number, f"`{target}` does not exist")


def change_log_has_the_version(project: Project) -> Iterator[Finding]:
    """The top entry of the change log is the version in pyproject.toml."""
    version = (
        tomllib.loads(project.files.get("pyproject.toml", "")).get("project", {}).get("version")
    )
    if version is None:
        return
    top = re.search(r"^## \[([^\]]+)\]", project.files.get("CHANGELOG.md", ""), flags=re.MULTILINE)
    if top is None or top[1] != version:
        says = f"the top entry is {top[1] if top else 'missing'}, pyproject.toml says {version}"
        yield Finding("CHANGELOG.md", 1, says)


def folder_sizes_are_current(project: Project) -> Iterator[Finding]:
    """The table of folders names every folder with its size; the row of the package is the sum."""
    page = "docs/architecture.md"
    listed: dict[str, tuple[int, int, int]] = {}
    package = None
    for number, line in project.lines(page):
        if (row := _FOLDER_ROW.match(line)) is not None:
            listed[row[1].rstrip("/")] = (number, _number(row[2]), _number(row[3]))
        elif (row := _PACKAGE_ROW.match(line)) is not None:
            package = (number, _number(row[1]), _number(row[2]))
    if not listed:
        return
    sizes: dict[str, list[int]] = {}
    for path in project.paths(suffix=".py"):
        if path.startswith(("src/tidelock/", "testkit/")):
            name = path.removeprefix("src/tidelock/")
            parents = [name, *(str(parent) for parent in PurePosixPath(name).parents)]
            folder = next((parent for parent in parents if parent in listed), None)
            if folder is None:
                yield Finding(page, 1, f"the table of folders does not name {path}")
            else:
                sizes.setdefault(folder, []).append(len(project.lines(path)))
    for folder, (number, files, lines) in listed.items():
        found = sizes.get(folder, [])
        off = abs(lines - sum(found))
        if files != len(found) or off > max(_LINES_OFF_MAX, lines * _LINES_TOLERANCE):
            says = f"{folder}: {len(found)} files, {sum(found):,} lines; the table says otherwise"
            yield Finding(page, number, says)
    installed = [size for folder, size in listed.items() if folder != _NOT_INSTALLED]
    files, lines = (sum(size[at] for size in installed) for at in (1, 2))
    if package is None or package[1:] != (files, lines):
        says = f"package: the rows add up to {files} files, {lines:,} lines"
        yield Finding(page, package[0] if package else 1, says)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _prose(project: Project, path: str) -> list[tuple[int, str]]:
    return list(enumerate(without_code_blocks(project.files[path]).splitlines(), start=1))


def _exists(project: Project, target: str) -> bool:
    return any(
        path == target or path.startswith(f"{target}/") or fnmatch.fnmatch(path, target)
        for path in project.files
    )


def _anchors(project: Project, path: str) -> set[str]:
    headings = re.findall(
        r"^#+ (.+)$", without_code_blocks(project.files.get(path, "")), flags=re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
