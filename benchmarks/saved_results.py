"""Results saved as JSON, and the page written from them."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from benchmarks.lakes.environments import SYSTEMS
from benchmarks.lakes.figure import LakeFigure, LakeRun, suite_of, system_of
from benchmarks.lakes.lake import NOT_OFFERED
from benchmarks.merging import MERGE, Merged
from benchmarks.page import page, plots
from benchmarks.suite import Results

T = TypeVar("T")

_RESULTS = Path(__file__).parent / "results"
_DOCS = Path(__file__).parent.parent / "docs"


def merge_with_newest(fresh: Results) -> Results:
    """Return the newest saved results with the parts of `fresh` replaced."""
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
    """Keep older merge figures of other systems if they have the same number of rows."""
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
    """Keep older figures of other suites, and of other systems of this suite.

    The latter only if they have the same number of rows and the machine was as busy.
    """
    now = {one.system for one in fresh.lakes} | {system_of(name) for name in fresh.missing}
    then = [one for one in before.lake_runs if one.suite == run.suite]
    alike = bool(then) and (then[0].rows, then[0].is_busy) == (run.rows, run.is_busy)
    gone = now if alike else set(SYSTEMS.values())
    before.lakes = [
        one for one in lakes if one.suite != run.suite or one.system not in gone
    ] + fresh.lakes
    before.lake_runs = [one for one in before.lake_runs if one.suite != run.suite] + [run]
    # Unsupported operations are listed by measure, with the names of the systems.
    before.missing = {
        name: why
        for name, why in before.missing.items()
        if suite_of(name) != run.suite
        or (system_of(name) not in gone and not why.startswith(NOT_OFFERED))
    }


def keep(results: Results, at: str) -> None:
    """Save results with the time `at`, and write the page."""
    file = save(results, at)
    write_page(results)
    print(f"saved {file.name}; wrote performance.md", file=sys.stderr)


def save(results: Results, at: str) -> Path:
    """Save results with the time `at`; return the file."""
    _RESULTS.mkdir(exist_ok=True)
    file = _RESULTS / f"{at.replace(':', '')}.json"
    file.write_text(json.dumps(asdict(results), indent=1) + "\n")
    return file


def newest() -> Results | None:
    """Return the newest saved results."""
    file = max(_RESULTS.glob("*.json"), default=None)
    return None if file is None else loaded(Results, json.loads(file.read_text()))


def write_page(results: Results) -> None:
    """Write docs/performance.md and its plots."""
    (_DOCS / "performance.md").write_text(page(results))
    for name, drawn in plots(results).items():
        (_DOCS / "plots").mkdir(exist_ok=True)
        (_DOCS / "plots" / name).write_text(drawn)


def loaded(kind: type[T], values: dict[str, Any]) -> T:
    """Return a dataclass with these field values; missing fields have their defaults."""
    hints = get_type_hints(kind)
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    arguments = {
        name: _value(hints[name], value) for name, value in values.items() if name in known
    }
    return kind(**arguments)


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
