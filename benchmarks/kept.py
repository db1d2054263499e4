"""Results that are kept as JSON, and the page that is written from them."""

from __future__ import annotations

import json
import sys
import types
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.page import page, plots
from benchmarks.suite import Results

T = TypeVar("T")

_RESULTS = Path(__file__).parent / "results"
_DOCS = Path(__file__).parent.parent / "docs"


def joined(fresh: Results) -> Results:
    """Return the newest kept results with what was measured now in its place."""
    newest = max(_RESULTS.glob("*.json"), default=None)
    if newest is None:
        return fresh
    before = loaded(Results, json.loads(newest.read_text()))
    if fresh.lakes:
        _join_lakes(before, fresh)
    for name in asdict(fresh):
        value = getattr(fresh, name)
        if isinstance(value, list) and value:
            setattr(before, name, value)
            before.taken[name] = fresh.taken_at
    before.missing.update(fresh.missing)
    return before


def _join_lakes(before: Results, fresh: Results) -> None:
    """Keep the lakes that were not measured now, if the others were as large and as undisturbed."""
    now = {one.system for one in fresh.lakes}
    then, run = before.lake_runs[-1:], fresh.lake_runs[-1]
    alike = bool(then) and (then[0].rows, then[0].is_busy) == (run.rows, run.is_busy)
    if alike:
        fresh.lakes = [one for one in before.lakes if one.system not in now] + fresh.lakes
    gone = tuple(now) if alike else tuple(SYSTEMS.values())
    # What a system does not offer is told by the measure, in sentences that name it.
    before.missing = {
        name: why
        for name, why in before.missing.items()
        if not name.startswith(gone) and not why.startswith(NOT_OFFERED)
    }


def keep(results: Results, at: str) -> None:
    """Write results under the time they are kept at, and the page made from them."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{at.replace(':', '')}.json"
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    write_page(results)
    print(f"kept in {file.name}; wrote performance.md", file=sys.stderr)


def write_page(results: Results) -> None:
    """Write docs/performance.md and its plots."""
    (_DOCS / "performance.md").write_text(page(results))
    for name, drawn in plots(results).items():
        (_DOCS / "plots").mkdir(exist_ok=True)
        (_DOCS / "plots" / name).write_text(drawn)


def loaded(kind: type[T], told: dict[str, Any]) -> T:
    """Return the dataclass whose fields `told` has; those it lacks keep their defaults."""
    hints = get_type_hints(kind)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    given = {name: _value(hints[name], value) for name, value in told.items() if name in known}
    return kind(**given)


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, tuple):
        made = [_value(arguments[0], each) for each in value]
        return made if origin is list else tuple(made)
    if origin is types.UnionType:
        return _value(next(each for each in arguments if each is not types.NoneType), value)
    return loaded(kind, value) if is_dataclass(kind) and isinstance(kind, type) else value
