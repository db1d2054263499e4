"""docs/configuration.md, from the registry of settings."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import tidelock
from tidelock.base import hudikeys
from tidelock.base.config import ConfigKey, declared

_HEAD = """# Settings

Generated from the code by `make docs`. Settings are given as a mapping to
`tidelock.lock(uri, settings=…)`, as `--prop KEY=VALUE` on the command line, or in a Java properties
file (`--props FILE`). Names that start with `hoodie.` are Hudi's and mean the same; ours start with
`tidelock.`. An old name still works and is logged. A misspelt name is refused, with the nearest.

Every setting of Hudi 1.2 is known. Those in the first tables are honoured. Of the others some
[change nothing here](#settings-of-hudi-without-effect): they are named in the log, once in a
process. Others are [refused](#settings-of-hudi-that-are-refused) before anything is written,
because what they ask for is not done. A value that asks for nothing is not, nor Hudi's default.
"""

_REFUSED = """
## Settings of Hudi that are refused

| setting | unless | because | instead |
|---|---|---|---|
"""

_HARMLESS = """
## Settings of Hudi without effect

| because | settings |
|---|---|
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
    return "".join([*parts, _REFUSED, *_refused(), _HARMLESS, *_harmless()])


def _refused() -> Iterator[str]:
    ours = {name for key in declared() for name in (key.key, *key.aliases)}
    for name, each in sorted(hudikeys.refused_names().items()):
        if name in ours:
            continue
        unless = [f"`{value}`" for value in each.fine if value not in ("", "null", "none")]
        unless += [f"`{each.fine_prefix}…`"] if each.fine_prefix else []
        unless += [f"as `{other}`" for other in each.same_as[:1]]
        says = each.why[0].upper() + each.why[1:]
        yield f"| `{name}` | {', '.join(unless)} | {says} | {each.hint} |\n"


def _harmless() -> Iterator[str]:
    ours = {name for key in declared() for name in (key.key, *key.aliases)}
    by_reason: dict[str, list[str]] = {}
    for name, why in sorted(hudikeys.harmless_names().items()):
        if name not in ours:
            by_reason.setdefault(why, []).append(f"`{name}`")
    for why, names in by_reason.items():
        yield f"| {why[0].upper()}{why[1:]} | {', '.join(names)} |\n"


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
