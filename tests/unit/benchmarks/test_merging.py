"""MERGE INTO compared with other lakehouse formats: timings, failures and wrong results."""

from __future__ import annotations

import json

from benchmarks.merging import Merges


def line(statement: str, **fields: object) -> str:
    usual = {"share": "1 %", "wall_s": 1.0, "cpu_s": 2.0, "others_s": 0.5}
    return json.dumps({"statement": statement, **usual, **fields})


def output_of(*walls_s: float, total: float = 7.0) -> str:
    lines = [line("MERGE", wall_s=wall_s) for wall_s in walls_s]
    return "\n".join(["a warning", *lines, json.dumps({"sum": total})])


def test_best_of_several_times_is_reported() -> None:
    found = Merges()
    found.take("delta", output_of(3.0, 2.0), 600)
    (one,) = found.figures
    assert (one.system, one.best_s, one.rows, one.others) == ("delta", 2.0, 600, 0.25)


def test_failed_statement_is_reported_with_its_reason_and_the_others_stay() -> None:
    found = Merges()
    failed = json.dumps({"statement": "MERGE", "share": "10 %", "reason": "no memory"})
    found.take("delta", f"{output_of(3.0)}\n{failed}", 600)
    assert [one.share for one in found.figures] == ["1 %"]
    assert found.missing == {"MERGE, delta: MERGE, 10 %": "no memory"}


def test_system_with_another_checksum_has_no_figures() -> None:
    found = Merges()
    for system, total in (("delta", 7.0), ("iceberg", 7.0), ("tidelock", 8.0)):
        found.take(system, output_of(1.0, total=total), 600)
    assert [one.system for one in found.figures] == ["delta", "iceberg"]
    assert list(found.missing) == ["MERGE, tidelock"]
