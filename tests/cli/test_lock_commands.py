"""`lock acquire`, `status`, `watch` and `force-release`, on real files."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import (
    LOCK_FILE,
    TOKENS_FILE,
    Program,
    end,
    eventually,
    java_record,
    now_ms,
    plant,
    start,
)
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.local import LocalStore


def _record(table: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((table / LOCK_FILE).read_bytes())
    return loaded


def _state(tidelock: Program, table: Path) -> object:
    return tidelock("lock", "status", str(table), "--json").facts["state"]


def test_status_of_a_never_acquired_lock_is_free(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 0
    assert "free" in ended.out
    assert "never been acquired" in ended.out
    assert list(table.iterdir()) == []


def test_acquire_prints_its_token_and_releases_after_its_duration(
    tidelock: Program, table: Path
) -> None:
    ended = tidelock("lock", "acquire", str(table), "--for", "0.05", "--json")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert [line["event"] for line in lines] == ["acquired", "released"]
    assert lines[0]["token"] == 1
    assert lines[0]["owner"] == _record(table)["owner"]
    assert _record(table)["expired"] is True


def test_acquire_ends_when_stdin_closes(table: Path) -> None:
    process = start("lock", "acquire", str(table), "--until-eof", stdin=subprocess.PIPE)
    eventually((table / LOCK_FILE).exists)
    assert process.poll() is None
    ended = end(process)  # closes standard input
    assert ended.code == 0
    assert "released" in ended.out
    assert _record(table)["expired"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_acquire_and_releases_the_lock(table: Path, number: int) -> None:
    process = start("lock", "acquire", str(table))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("acquired")
    process.send_signal(number)
    ended = end(process)
    assert ended.code == 0
    assert _record(table)["expired"] is True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_wait_for_a_lock(table: Path, number: int, code: int) -> None:
    held = java_record(expired=False, valid_until_epoch_ms=now_ms() + 600_000)
    plant(table, held)
    process = start("lock", "acquire", str(table), "--wait", "inf")
    # The probe of the store is written before the first read of the lock.
    eventually((table / ".hoodie/.locks/.tidelock-proof.json").exists)
    process.send_signal(number)
    ended = end(process)
    assert (ended.code, ended.out, ended.err) == (code, "", "")
    assert (table / LOCK_FILE).read_bytes() == held


def test_held_lock_is_not_acquired_and_its_holder_is_reported(
    tidelock: Program, table: Path
) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    ended = tidelock("lock", "acquire", str(table), "--no-wait")
    assert ended.code == 4
    assert "java-1" in ended.err


def test_detached_lock_stays_until_released_with_its_token(tidelock: Program, table: Path) -> None:
    taken = end(start("lock", "acquire", str(table), "--detach", "--json")).facts
    assert _state(tidelock, table) == "held"
    assert taken["release_with"].endswith(f"--if-token {taken['token']}")
    ended = tidelock("lock", "acquire", str(table), "--detach", "--no-wait")
    assert ended.code == 4
    assert f"token {taken['token']}" in ended.err
    args = taken["release_with"].split()[1:]
    assert tidelock(*args, "--yes").code == 0
    assert _state(tidelock, table) == "free"


def test_status_identifies_a_java_holder(tidelock: Program, table: Path) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    facts = tidelock("lock", "status", str(table), "--json").facts
    assert facts["state"] == "held"
    assert facts["written_by"] == "hudi-java"
    assert facts["token"] is None
    assert 0 < facts["expires_in_ms"] <= 60_000
    assert facts["takeover_in_ms"] > facts["expires_in_ms"]
    assert json.loads(facts["raw"])["owner"] == "java-1"
    assert "a Hudi Java writer" in tidelock("lock", "status", str(table)).out


@pytest.mark.parametrize(
    ("ago_ms", "state"), [(-600_000, "held"), (1_000, "lapsed"), (3_600_000, "dead")]
)
def test_status_distinguishes_held_lapsed_and_dead(
    tidelock: Program, table: Path, ago_ms: int, state: str
) -> None:
    # Ten minutes of drift: a record that has just expired stays in doubt during this test.
    drift = ["--prop", "tidelock.lock.clock.drift.ms=600000"]
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() - ago_ms))
    ended = tidelock("lock", "status", str(table), *drift, "--json")
    assert (ended.code, ended.facts["state"]) == (0, state)


def test_status_of_an_unreadable_record_exits_with_7(tidelock: Program, table: Path) -> None:
    plant(table, b'{"expired":')
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 7
    assert "truncated JSON" in ended.out
    assert "lock doctor" in ended.out


def test_status_takes_the_acquisition_time_from_the_audit_log(
    tidelock: Program, table: Path
) -> None:
    tidelock("lock", "audit", str(table), "enable")
    before = now_ms()
    taken = tidelock("lock", "acquire", str(table), "--detach", "--json").facts
    facts = tidelock("lock", "status", str(table), "--json").facts
    assert facts["owner"] == taken["owner"]
    assert before <= facts["since_epoch_ms"] <= now_ms()
    assert facts["audit_enabled"] is True


def test_watch_prints_each_change_once_and_ends_on_ctrl_c(table: Path) -> None:
    process = start("lock", "watch", str(table), "--interval", "0.05", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["state"] == "free"
    lock = Lock(LocalStore(table), Lease(validity_ms=10_000, renew_ms=1_000))
    token = lock.acquire()
    line = json.loads(process.stdout.readline())
    assert (line["state"], line["token"]) == ("held", token)
    lock.close()
    assert json.loads(process.stdout.readline())["state"] == "free"
    plant(table, b"")
    line = json.loads(process.stdout.readline())
    assert (line["state"], line["problem"]) == ("unreadable", "lock record: empty")
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_watch_ends_after_its_duration(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "watch", str(table), "--for", "0.1", "--interval", "0.05")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 1


def test_force_release_requires_yes_without_a_terminal(tidelock: Program, table: Path) -> None:
    held = java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000)
    path = plant(table, held)
    for more in ([], ["--json"]):
        ended = tidelock("lock", "force-release", str(table), *more)
        assert ended.code == 2
        assert "--yes" in ended.out + ended.err
    assert path.read_bytes() == held


@pytest.mark.parametrize(("answer", "code", "expired"), [("n", 1, False), ("y", 0, True)])
def test_force_release_asks_for_confirmation_at_a_terminal(
    table: Path, answer: str, code: int, *, expired: bool
) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    ours, theirs = pty.openpty()
    process = start("lock", "force-release", str(table), stdin=theirs)
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    ended = end(process)
    os.close(ours)
    assert ended.code == code
    assert "java-1" in ended.err
    assert _record(table)["expired"] is expired


def test_force_release_with_another_token_changes_nothing(tidelock: Program, table: Path) -> None:
    tidelock("lock", "acquire", str(table), "--detach")
    before = (table / LOCK_FILE).read_bytes()
    ended = tidelock("lock", "force-release", str(table), "--if-token", "7", "--yes")
    assert ended.code == 4
    assert "expected token 7, found 1" in ended.err
    assert (table / LOCK_FILE).read_bytes() == before


def test_java_holder_cannot_be_released_by_token(tidelock: Program, table: Path) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    ended = tidelock("lock", "force-release", str(table), "--if-token", "1", "--yes")
    assert ended.code == 4
    assert _record(table)["expired"] is False


def test_tokens_increase_after_force_release(tidelock: Program, table: Path) -> None:
    first = tidelock("lock", "acquire", str(table), "--detach", "--json").facts["token"]
    tidelock("lock", "force-release", str(table), "--yes")
    second = tidelock("lock", "acquire", str(table), "--detach", "--json").facts["token"]
    assert second > first


def test_force_released_java_record_keeps_its_fields_and_tokens_exceed_the_counter(
    tidelock: Program, table: Path
) -> None:
    tidelock("lock", "acquire", str(table), "--for", "0")
    ceiling = json.loads((table / TOKENS_FILE).read_bytes())["ceiling"]
    until = now_ms() + 60_000
    plant(table, java_record(expired=False, valid_until_epoch_ms=until))
    ended = tidelock("lock", "force-release", str(table), "--yes", "--json")
    assert ended.facts["changed"] is True
    record = _record(table)
    assert (record["expired"], record["validUntil"], record["owner"]) == (True, until, "java-1")
    taken = tidelock("lock", "acquire", str(table), "--detach", "--json").facts
    assert taken["token"] == ceiling + 1


def test_force_release_of_a_free_lock_changes_nothing(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "force-release", str(table), "--yes", "--json")
    assert (ended.code, ended.facts["changed"]) == (0, False)
    assert list(table.iterdir()) == []


def test_force_release_leaves_an_unreadable_record_unchanged(
    tidelock: Program, table: Path
) -> None:
    path = plant(table, b"what is this")
    ended = tidelock("lock", "force-release", str(table), "--yes")
    assert ended.code == 7
    assert "doctor" in ended.err
    assert path.read_bytes() == b"what is this"
