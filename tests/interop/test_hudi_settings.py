"""The list of Hudi's settings that the tests keep is Hudi's own."""

from __future__ import annotations

from pathlib import Path

KEPT = Path(__file__).parents[1] / "unit" / "operation" / "hudi-1.2.0-keys.jsonl"


def test_the_kept_list_is_what_hudi_declares(hudi_settings: list[str]) -> None:
    assert hudi_settings == KEPT.read_text().splitlines()
