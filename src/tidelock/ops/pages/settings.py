"""docs/configuration.md, from the registry of settings."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import tidelock
from tidelock.base.config import ConfigKey, declared

_HEAD = """# Settings

Generated from the code by `make docs`. Settings are given as a mapping to
`tidelock.lock(uri, settings=…)`, as `--prop KEY=VALUE` on the command line, or in a Java properties
file (`--props FILE`). Names that start with `hoodie.` are Hudi's and mean the same; ours start with
`tidelock.`. An old name still works and is logged. A misspelt name below `hoodie.write.lock.` or
`tidelock.` is refused; other `hoodie.` settings are left alone.
"""


def settings_page() -> str:
    """Return the page."""
    _import_everything()
    groups: dict[str, list[ConfigKey[Any]]] = {}
    for key in declared():
        groups.setdefault(key.group or "Other", []).append(key)
    parts = [_HEAD]
    for group in sorted(groups, key=_group_order):
        parts.append(f"\n## {group}\n\n| setting | default | |\n|---|---|---|\n")
        parts += [_row(key) for key in groups[group]]
    return "".join(parts)


def _row(key: ConfigKey[Any]) -> str:
    says = key.doc[0].upper() + key.doc[1:] + "."
    if key.aliases:
        says += f" Old name: {', '.join(f'`{alias}`' for alias in key.aliases)}."
    if key.secret:
        says += " Never shown in messages."
    return f"| `{key.key}` | {_default(key.default)} | {says.replace('|', chr(92) + '|')} |\n"


def _default(default: object) -> str:
    if default is None or default == "":
        return ""
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`"


def _group_order(group: str) -> tuple[int, str]:
    return (0 if group == "Lock" else 1, group)


def _import_everything() -> None:
    """Import every module that may declare a setting."""
    for found in pkgutil.walk_packages(tidelock.__path__, "tidelock."):
        if found.name.startswith(("tidelock.testing", "tidelock.ops")):
            continue
        importlib.import_module(found.name)
