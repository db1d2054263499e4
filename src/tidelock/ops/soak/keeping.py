"""What a soak keeps in its folder, so that one that was interrupted goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidelock.base.errors import InvalidInput
from tidelock.ops.soak.curves import Curves, Sample, Written

_STATE: Final = "soak.json"
_CURVES: Final = "curves.json"


@dataclass(frozen=True, slots=True)
class Kept:
    """How far an earlier run came."""

    elapsed_s: float
    curves: Curves


def save(folder: Path, scenario: str, elapsed_s: float, curves: Curves) -> None:
    """Write down how far this run is."""
    fields = {
        "samples": [asdict(sample) for sample in curves.samples],
        "writes": curves.writes,
        "harms": curves.harms,
        "requests": [[at, role, sent] for (at, role), sent in curves.requests.items()],
    }
    _write(folder / _CURVES, fields)
    _write(folder / _STATE, {"scenario": scenario, "elapsed_s": elapsed_s})


def is_kept(folder: Path) -> bool:
    """Tell whether an earlier run left anything."""
    return (folder / _STATE).exists()


def load(folder: Path, scenario: str) -> Kept | None:
    """Return what an earlier run left; None without one.

    Raises: `InvalidInput` if that was another scenario.
    """
    if not is_kept(folder):
        return None
    kept = json.loads((folder / _STATE).read_text())
    if kept["scenario"] != scenario:
        raise InvalidInput(
            f"{folder} holds a soak of the scenario {kept['scenario']!r}",
            hint="choose that scenario, or another folder",
        )
    return Kept(kept["elapsed_s"], _curves_of(json.loads((folder / _CURVES).read_text())))


def _curves_of(fields: dict[str, list[Any]]) -> Curves:
    return Curves(
        [Sample(**each) for each in fields["samples"]],
        [Written(*each) for each in fields["writes"]],
        [(float(at), str(what)) for at, what in fields["harms"]],
        {(int(at), str(role)): Counter(sent) for at, role, sent in fields["requests"]},
    )


def _write(path: Path, value: object) -> None:
    """Write a file whole, or leave the one that is there."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)
