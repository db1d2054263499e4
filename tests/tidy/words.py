"""Rules about words: no notes for later, local paths, registries, or references to tickets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.project import Finding, Project


def _host(*labels: str) -> str:
    """Build a host name from parts: this file is checked by its own rule."""
    return r"\b" + re.escape(".".join(labels))


_UNFINISHED = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")) + r")\b"
)

_PLACES = re.compile(r"(?<![\w./:~*}$-])/(work|root|Users|home)/")

_REGISTRIES = re.compile(
    "|".join(
        (
            _host("pypi", "org"),
            _host("pythonhosted", "org"),
            _host("registry", "npmjs"),
            _host("registry", "yarnpkg"),
            _host("repo1", "maven"),
            _host("repo", "maven"),
            _host("proxy", "golang"),
            _host("crates", "io"),
        )
    )
)

_SOMEBODY_ELSE = re.compile(
    r"\bissue\s?#?\d|\b(closes|fixes|resolves) #\d"
    r"|\bas (requested|instructed|asked for|per the)\b|\bper (the )?(instructions?|brief|prompt)\b"
    r"|\bsub-?agents?\b|\blanguage model\b|\bLLMs?\b"
    r"|\bthe (brief|prompt|reviewers?) (says|asks|wants)\b",
    re.IGNORECASE,
)


def no_unfinished_work_is_marked(project: Project) -> Iterator[Finding]:
    """Unfinished work is not marked in the code; limits are listed in the README."""
    yield from _matches(project, _UNFINISHED, "finish it, or list it as a limit in the README")


def no_local_paths(project: Project) -> Iterator[Finding]:
    """No paths of a developer's machine."""
    yield from _matches(project, _PLACES, "a path of one machine: use a relative one")


def no_registry_is_named(project: Project) -> Iterator[Finding]:
    """No package registries: the source of packages is the reader's configuration."""
    yield from _matches(
        project, _REGISTRIES, "a registry's host: leave it to the configuration of the tool"
    )


def no_ticket_references(project: Project) -> Iterator[Finding]:
    """No ticket numbers or references to requests: the reader does not know them."""
    yield from _matches(project, _SOMEBODY_ELSE, "say why in the project's own words")


def _matches(project: Project, pattern: re.Pattern[str], advice: str) -> Iterator[Finding]:
    for path in project.paths():
        for number, line in project.lines(path):
            if found := pattern.search(line):
                yield Finding(path, number, f"{found[0]!r}: {advice}")
