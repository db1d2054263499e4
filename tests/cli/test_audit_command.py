"""`lock audit`, end to end on real files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.program import Program, now_ms, plant

FOLDER = ".hoodie/.locks/audit"
DAY_S = 24 * 3600


def _line(at: int, state: str, *, owner: str = "o1", validity: int = 10_000) -> str:
    return json.dumps(
        {
            "ownerId": owner,
            "transactionStartTime": at,
            "timestamp": at,
            "state": state,
            "lockExpiration": at + validity,
            "lockHeld": True,
        }
    )


def _holding(table: Path, began: int, ended: int | None, *, owner: str) -> Path:
    lines = [_line(began, "START", owner=owner)]
    if ended is not None:
        lines.append(_line(ended, "END", owner=owner))
    body = ("\n".join(lines) + "\n").encode()
    return plant(table, body, name=f"{FOLDER}/{began}_{owner}.jsonl")


def test_audit_switch_is_the_one_hudi_uses(tidelock: Program, table: Path) -> None:
    switch = table / ".hoodie/.locks/audit_enabled.json"
    assert tidelock("lock", "audit", str(table), "enable").code == 0
    assert json.loads(switch.read_bytes()) == {"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": True}
    assert tidelock("lock", "audit", str(table), "status", "--json").facts["audit_enabled"] is True
    assert tidelock("lock", "audit", str(table), "disable").code == 0
    assert json.loads(switch.read_bytes()) == {"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": False}
    facts = tidelock("lock", "audit", str(table), "status", "--json").facts
    assert facts["audit_enabled"] is False
    assert facts["config_path"] == f"file://{switch}"


def test_show_lists_lock_holdings(tidelock: Program, table: Path) -> None:
    tidelock("lock", "audit", str(table), "enable")
    tidelock("lock", "acquire", str(table), "--for", "0")
    (shown,) = tidelock("lock", "audit", str(table), "show", "--json").facts["holdings"]
    assert shown["released"] is True
    assert shown["began_epoch_ms"] <= shown["ended_epoch_ms"]
    assert shown["owner"] in tidelock("lock", "audit", str(table), "show").out
    ended = tidelock("lock", "audit", str(table), "validate", "--json")
    assert (ended.code, ended.facts["validation_result"]) == (0, "PASSED")
    assert ended.facts["transactions_validated"] == 1


def test_validate_without_audit_files_passes(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "audit", str(table), "validate", "--json")
    assert (ended.code, ended.facts["validation_result"]) == (0, "PASSED")
    assert "no audit files" in tidelock("lock", "audit", str(table), "show").out


def test_overlap_fails_validation(tidelock: Program, table: Path) -> None:
    _holding(table, 1_000_000, 1_010_000, owner="o1")
    _holding(table, 1_005_000, 1_020_000, owner="o2")
    ended = tidelock("lock", "audit", str(table), "validate", "--json")
    assert (ended.code, ended.facts["validation_result"]) == (1, "FAILED")
    assert ended.facts["issues"][0]["within_drift"] is False
    assert "FAILED" in tidelock("lock", "audit", str(table), "validate").out


def test_overlap_within_clock_drift_is_marked(tidelock: Program, table: Path) -> None:
    _holding(table, 1_000_000, 1_010_000, owner="o1")
    _holding(table, 1_009_600, 1_020_000, owner="o2")
    ended = tidelock("lock", "audit", str(table), "validate")
    assert ended.code == 1
    assert "within the clock drift of 500 ms" in ended.out


def test_holding_without_end_is_a_warning(tidelock: Program, table: Path) -> None:
    _holding(table, 1_000_000, None, owner="o1")
    ended = tidelock("lock", "audit", str(table), "validate", "--json")
    assert (ended.code, ended.facts["validation_result"]) == (0, "WARNING")
    assert "no end recorded" in tidelock("lock", "audit", str(table), "show").out


def test_unlistable_folder_is_an_error(tidelock: Program, table: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (table / ".hoodie/.locks").mkdir(parents=True)
    (table / FOLDER).symlink_to(elsewhere)
    ended = tidelock("lock", "audit", str(table), "validate", "--json")
    assert (ended.code, ended.facts["validation_result"]) == (2, "ERROR")
    assert ended.facts["issues_found"] == -1
    assert tidelock("lock", "audit", str(table), "validate").code == 2


@pytest.mark.parametrize("dry", [True, False])
def test_cleanup_uses_the_object_age(tidelock: Program, table: Path, *, dry: bool) -> None:
    old = _holding(table, 1_000, 2_000, owner="old")
    fresh = _holding(table, 3_000, 4_000, owner="fresh")
    other = plant(table, b"", name=f"{FOLDER}/note.txt")
    then_s = now_ms() / 1000 - 8 * DAY_S
    os.utime(old, (then_s, then_s))
    os.utime(other, (then_s, then_s))
    args = ["--dry-run"] if dry else []
    facts = tidelock("lock", "audit", str(table), "cleanup", "--json", *args).facts
    assert facts["files_cleaned"] == (0 if dry else 1)
    assert facts["files_found"] == 1
    assert old.exists() is dry
    assert fresh.exists()
    assert other.exists()


def test_disable_deletes_files_only_on_request(tidelock: Program, table: Path) -> None:
    path = _holding(table, 1_000, 2_000, owner="o1")
    tidelock("lock", "audit", str(table), "disable")
    assert path.exists()
    facts = tidelock("lock", "audit", str(table), "disable", "--delete-files", "--json").facts
    assert facts["files_deleted"] == 1
    assert not path.exists()
