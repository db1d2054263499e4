"""acquire, status, watch and force-release, on real files."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.ops.program import (
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
from tidelock.lock.driver import Lock
from tidelock.lock.lease import Lease
from tidelock.store.local import LocalStore


def _record(table: Path) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((table / LOCK_FILE).read_bytes())
    return loaded


def _state(tidelock: Program, table: Path) -> object:
    return tidelock("lock", "status", str(table), "--json").facts["state"]


def test_status_of_a_lock_never_taken_is_free(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 0
    assert "free" in ended.out
    assert "never been taken" in ended.out
    assert list(table.iterdir()) == []


def test_acquire_says_its_token_and_releases_after_its_time(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "acquire", str(table), "--for", "0.05", "--json")
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 0
    assert [line["event"] for line in lines] == ["acquired", "released"]
    assert lines[0]["token"] == 1
    assert lines[0]["owner"] == _record(table)["owner"]
    assert _record(table)["expired"] is True


def test_acquire_ends_with_standard_input(table: Path) -> None:
    process = start("lock", "acquire", str(table), "--until-eof", stdin=subprocess.PIPE)
    eventually((table / LOCK_FILE).exists)
    assert process.poll() is None
    ended = end(process)  # closes standard input
    assert ended.code == 0
    assert "released" in ended.out
    assert _record(table)["expired"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_acquire_with_a_release(table: Path, number: int) -> None:
    process = start("lock", "acquire", str(table))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("acquired")
    process.send_signal(number)
    ended = end(process)
    assert ended.code == 0
    assert _record(table)["expired"] is True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_wait_for_a_lock(table: Path, number: int, code: int) -> None:
    held = java_record(expired=False, valid_until_epoch_ms=now_ms() + 600_000)
    plant(table, held)
    process = start("lock", "acquire", str(table), "--wait", "inf")
    # The proof of the store is written before the first look at the lock.
    eventually((table / ".hoodie/.locks/.tidelock-proof.json").exists)
    process.send_signal(number)
    ended = end(process)
    assert (ended.code, ended.out, ended.err) == (code, "", "")
    assert (table / LOCK_FILE).read_bytes() == held


def test_a_held_lock_is_not_acquired_and_its_holder_is_named(
    tidelock: Program, table: Path
) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    ended = tidelock("lock", "acquire", str(table), "--no-wait")
    assert ended.code == 4
    assert "java-1" in ended.err


def test_a_detached_lock_stays_until_it_is_released_by_its_token(
    tidelock: Program, table: Path
) -> None:
    taken = end(start("lock", "acquire", str(table), "--detach", "--json")).facts
    assert _state(tidelock, table) == "held"
    assert taken["release_with"].endswith(f"--if-token {taken['token']}")
    ended = tidelock("lock", "acquire", str(table), "--detach", "--no-wait")
    assert ended.code == 4
    assert f"token {taken['token']}" in ended.err
    args = taken["release_with"].split()[1:]
    assert tidelock(*args, "--yes").code == 0
    assert _state(tidelock, table) == "free"


def test_status_shows_a_java_holder_for_what_it_is(tidelock: Program, table: Path) -> None:
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
def test_status_tells_held_lapsed_and_dead_apart(
    tidelock: Program, table: Path, ago_ms: int, state: str
) -> None:
    # Ten minutes of drift: a record that has just run out stays in doubt while this runs.
    drift = ["--prop", "tidelock.lock.clock.drift.ms=600000"]
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() - ago_ms))
    ended = tidelock("lock", "status", str(table), *drift, "--json")
    assert (ended.code, ended.facts["state"]) == (0, state)


def test_status_of_an_unreadable_record_ends_with_7(tidelock: Program, table: Path) -> None:
    plant(table, b'{"expired":')
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 7
    assert "ends too early" in ended.out
    assert "lock doctor" in ended.out


def test_status_knows_since_when_from_the_audit_log(tidelock: Program, table: Path) -> None:
    tidelock("lock", "audit", str(table), "enable")
    before = now_ms()
    taken = tidelock("lock", "acquire", str(table), "--detach", "--json").facts
    facts = tidelock("lock", "status", str(table), "--json").facts
    assert facts["owner"] == taken["owner"]
    assert before <= facts["since_epoch_ms"] <= now_ms()
    assert facts["audit_enabled"] is True


def test_watch_shows_each_change_once_and_ends_with_ctrl_c(table: Path) -> None:
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
    assert (line["state"], line["problem"]) == ("unreadable", "the lock record is empty")
    process.send_signal(signal.SIGINT)
    ended = end(process)
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_watch_ends_after_its_time(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "watch", str(table), "--for", "0.1", "--interval", "0.05")
    assert ended.code == 0
    assert len(ended.out.splitlines()) == 1


def test_force_release_needs_a_yes_where_nobody_can_be_asked(
    tidelock: Program, table: Path
) -> None:
    held = java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000)
    path = plant(table, held)
    for more in ([], ["--json"]):
        ended = tidelock("lock", "force-release", str(table), *more)
        assert ended.code == 2
        assert "--yes" in ended.out + ended.err
    assert path.read_bytes() == held


@pytest.mark.parametrize(("answer", "code", "expired"), [("n", 1, False), ("y", 0, True)])
def test_force_release_asks_a_person(table: Path, answer: str, code: int, *, expired: bool) -> None:
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
    assert "has token 1, not 7" in ended.err
    assert (table / LOCK_FILE).read_bytes() == before


def test_a_java_holder_has_no_token_to_be_released_by(tidelock: Program, table: Path) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    ended = tidelock("lock", "force-release", str(table), "--if-token", "1", "--yes")
    assert ended.code == 4
    assert _record(table)["expired"] is False


def test_force_release_keeps_tokens_growing(tidelock: Program, table: Path) -> None:
    first = tidelock("lock", "acquire", str(table), "--detach", "--json").facts["token"]
    tidelock("lock", "force-release", str(table), "--yes")
    second = tidelock("lock", "acquire", str(table), "--detach", "--json").facts["token"]
    assert second > first


def test_a_forced_java_record_keeps_its_fields_and_tokens_go_on_above_the_counter(
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


def test_force_release_does_not_touch_what_it_cannot_read(tidelock: Program, table: Path) -> None:
    path = plant(table, b"what is this")
    ended = tidelock("lock", "force-release", str(table), "--yes")
    assert ended.code == 7
    assert "doctor" in ended.err
    assert path.read_bytes() == b"what is this"
