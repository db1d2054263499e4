"""Results that are kept as JSON, and the page that is written from them."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import LakeFigure, LakeRun, course_of, system_of
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.merging import MERGE, Merged
from benchmarks.page import page, plots
from benchmarks.suite import Results

T = TypeVar("T")

_RESULTS = Path(__file__).parent / "results"
_DOCS = Path(__file__).parent.parent / "docs"


def joined(fresh: Results) -> Results:
    """Return the newest kept results with what was measured now in its place."""
    before = newest()
    if before is None:
        return fresh
    lakes, merged = before.lakes, before.merging
    for name in asdict(fresh):
        value = getattr(fresh, name)
        if isinstance(value, list) and value and name != "lake_runs":
            setattr(before, name, value)
            before.taken[name] = fresh.taken_at
    for run in fresh.lake_runs:
        _join_lakes(before, lakes, fresh, run)
    if fresh.merging:
        _join_merges(before, merged, fresh)
    before.missing.update(fresh.missing)
    return before


def _join_merges(before: Results, merged: Sequence[Merged], fresh: Results) -> None:
    """Keep the merges of systems that were not measured now, if they had as many rows."""
    rows = fresh.merging[0].rows
    names = (name for name in fresh.missing if name.startswith(MERGE))
    now = {one.system for one in fresh.merging} | {system_of(name[len(MERGE) :]) for name in names}
    others = [one for one in merged if one.system not in now and one.rows == rows]
    before.merging = others + fresh.merging
    before.missing = {
        name: why
        for name, why in before.missing.items()
        if not (name.startswith(MERGE) and system_of(name[len(MERGE) :]) in now)
    }


def _join_lakes(before: Results, lakes: Sequence[LakeFigure], fresh: Results, run: LakeRun) -> None:
    """Keep the lakes of other courses, and of this one those that were not measured now.

    Those only if they were measured with as many rows, and as undisturbed.
    """
    now = {one.system for one in fresh.lakes} | {system_of(name) for name in fresh.missing}
    then = [one for one in before.lake_runs if one.course == run.course]
    alike = bool(then) and (then[0].rows, then[0].is_busy) == (run.rows, run.is_busy)
    gone = now if alike else set(SYSTEMS.values())
    before.lakes = [
        one for one in lakes if one.course != run.course or one.system not in gone
    ] + fresh.lakes
    before.lake_runs = [one for one in before.lake_runs if one.course != run.course] + [run]
    # What a system does not offer is told by the measure, in sentences that name it.
    before.missing = {
        name: why
        for name, why in before.missing.items()
        if course_of(name) != run.course
        or (system_of(name) not in gone and not why.startswith(NOT_OFFERED))
    }


def keep(results: Results, at: str) -> None:
    """Write results under the time they are kept at, and the page made from them."""
    file = save(results, at)
    write_page(results)
    print(f"kept in {file.name}; wrote performance.md", file=sys.stderr)


def save(results: Results, at: str) -> Path:
    """Write results under the time they are kept at; return the file."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{at.replace(':', '')}.json"
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    return file


def newest() -> Results | None:
    """Return the newest results that were kept."""
    file = max(_RESULTS.glob("*.json"), default=None)
    return None if file is None else loaded(Results, json.loads(file.read_text()))


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
