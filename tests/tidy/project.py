"""The project's text files, which the rules read. A planted sample is a `Project` too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

# Hand-written files. Git is not used: a release archive has no repository.
FOLDERS = (
    *("src", "testkit", "tests", "benchmarks", "examples", "docs", "specs", "scripts"),
    *(".ci", ".github"),
)
TEXT = {
    *("", ".awk", ".cfg", ".html", ".java", ".lock", ".md", ".py", ".sh", ".tla", ".toml", ".txt"),
    ".yml",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a rule, as `path:line: what and what to do`."""

    path: str
    line: int
    says: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.says}"


@dataclass(frozen=True, slots=True)
class Project:
    """Every text file of a project by its path from the root."""

    files: Mapping[str, str]

    def paths(self, prefix: str = "", suffix: str = "") -> Iterator[str]:
        """Yield the paths with this prefix and suffix, in order."""
        yield from sorted(p for p in self.files if p.startswith(prefix) and p.endswith(suffix))

    def lines(self, path: str) -> list[tuple[int, str]]:
        """Return the lines of a file with their numbers."""
        return list(enumerate(self.files.get(path, "").splitlines(), start=1))

    def tree(self, path: str) -> ast.Module:
        """Return the parsed file."""
        return _parsed(self.files[path])

    def modules(self) -> dict[str, str]:
        """Return the modules of the product and of the test kit, dotted name to path."""
        found = [*self.paths("src/", ".py"), *self.paths("testkit/", ".py")]
        return {module_name(path): path for path in found}


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def module_name(path: str) -> str:
    """Return the dotted name of a Python file."""
    parts = PurePosixPath(path.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def without_code_blocks(text: str) -> str:
    """Blank the fenced blocks of a page, keeping the line numbers."""
    return re.sub(
        r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
    )


@cache
def this_project() -> Project:
    """Read this checkout."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in ROOT.joinpath(folder).rglob("*") if path.is_file()]
    return Project(
        {
            path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
            for path in found
            if path.suffix in TEXT and "__pycache__" not in path.parts
        }
    )
