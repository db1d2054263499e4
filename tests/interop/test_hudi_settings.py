"""The committed list of Hudi's settings equals Hudi's own."""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).parents[1] / "unit" / "operations" / "hudi-1.2.0-keys.jsonl"


def test_committed_list_matches_hudi(hudi_settings: list[str]) -> None:
    assert hudi_settings == KEPT.read_text().splitlines()
