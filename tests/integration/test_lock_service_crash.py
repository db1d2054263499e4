"""The lock service crashes repeatedly; no grant and no token order is lost (V1, V4)."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.history import Section, violations
from testkit.lockserver import ServiceProcess
from tests.integration.lock_service import Http, Lines, eventually
from tidelock.core.errors import HoldingLost, TidelockError
from tidelock.lock.server.client import ServiceLockProvider
from tidelock.lock.server.entries import NO_HASH, entry_of, follows
from tidelock.lock.state import Standing

pytestmark = pytest.mark.xdist_group("lock-service-crash")

KILLS = int(os.environ.get("TIDELOCK_KILLS", "4"))
"""`TIDELOCK_KILLS=100` for the long run."""
CONTENDERS = 4


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    args = ["--allow-force", "--audit-file", str(tmp_path / "audit.jsonl")]
    with ServiceProcess(str(tmp_path / "store"), args, log=tmp_path / "log") as running:
        yield running


def contend(url: str, who: str, stop: threading.Event, sections: list[Section]) -> None:
    """Acquire the lock, record the section, release it; whatever happens to the service."""
    lock = ServiceLockProvider.at(url, "contended", ttl_ms=2_000)
    while not stop.is_set():
        try:
            if not lock.try_lock(500):
                continue
            token = lock.check()
            began_ns = time.monotonic_ns()
            time.sleep(0.002)  # the critical section
            # Read before the check: a pause after it must not make the section longer.
            ended_ns = time.monotonic_ns()
            lock.check()
            sections.append(Section(who, token, began_ns, ended_ns))
            lock.unlock()
        except HoldingLost:
            continue
        except TidelockError:
            time.sleep(0.05)  # the service restarts
    lock.close()


@pytest.mark.timeout(max(300, 20 * KILLS))
def test_sigkill_under_load_loses_no_grant_and_no_token_order(service: ServiceProcess) -> None:
    stop = threading.Event()
    sections: list[Section] = []
    threads = [
        threading.Thread(target=contend, args=(service.url, f"c{number}", stop, sections))
        for number in range(CONTENDERS)
    ]
    http = Http(service.url)
    held = http.lock("long", ttl="60s", owner="me").json
    for thread in threads:
        thread.start()
    kept_token = held["token"]
    for _ in range(KILLS):
        before = len(sections)
        eventually(lambda before=before: len(sections) >= before + 3, within_s=120)
        service.kill()
        service.start()
        status = http.status("long")
        assert status["locked"], "a grant was forgotten"
        assert status["token"] == kept_token
        assert http.lock("long", immediate=True).status == 409
    stop.set()
    for thread in threads:
        thread.join(60)
    assert len(sections) >= 3 * KILLS
    assert list(violations(sections)) == []
    assert http.unlock("long", held["lockID"]).status == 204
    http.close()


def test_checker_detects_a_service_that_loses_its_state(tmp_path: Path) -> None:
    """The same load against a service whose store is wiped at each start must be caught."""
    import shutil

    store = tmp_path / "store"
    with ServiceProcess(str(store), log=tmp_path / "log") as service:
        http = Http(service.url)
        first = http.lock("r", ttl="60s").json
        began_ns = time.monotonic_ns()
        service.kill()
        shutil.rmtree(store)
        service.start()
        second = http.lock("r", immediate=True).json
        now_ns = time.monotonic_ns()
        sections = [
            Section("a", first["token"], began_ns, now_ns),
            Section("b", second["token"], now_ns - 1, now_ns + 1),
        ]
        assert list(violations(sections))
        http.close()


def test_holder_keeps_its_lock_over_a_restart_without_noticing(service: ServiceProcess) -> None:
    lock = ServiceLockProvider.at(service.url, "held", ttl_ms=60_000)
    assert lock.try_lock(0)
    token = lock.check()
    lost: list[str] = []
    lock.on_lost(lost.append)
    service.kill()
    service.start()
    renewed = lock.deadline_monotonic_ms()
    eventually(lambda: lock.deadline_monotonic_ms() != renewed)
    assert lock.state is Standing.HELD
    assert lock.check() == token
    lock.unlock()
    lock.close()
    assert lost == []


def test_holder_without_a_service_stops_in_time(service: ServiceProcess) -> None:
    lock = ServiceLockProvider.at(service.url, "orphan", ttl_ms=1_500)
    assert lock.try_lock(0)
    lost = threading.Event()
    lock.on_lost(lambda cause: lost.set())
    service.kill()
    eventually(lambda: lock.state is Standing.LOST)
    assert lost.wait(60)
    service.start()
    lock.close()


def test_lock_orphaned_by_a_crash_expires_one_ttl_after_the_restart(
    service: ServiceProcess,
) -> None:
    http = Http(service.url)
    assert http.lock("left", ttl="20s", autoRenew=False).status == 200
    kept = http.lock("kept", ttl="20s").json
    service.kill()
    service.start()
    assert http.lock("left", immediate=True).status == 409
    assert http.lock("left", wait="110s").status == 200
    assert http.lock("kept", wait="110s").json["token"] > kept["token"]
    http.close()


def test_lingering_stream_can_be_resumed_after_a_crash(service: ServiceProcess) -> None:
    http = Http(service.url)
    stream: Lines = http.stream("through", ttl="60s", linger="60s")
    line = stream.next()
    assert line is not None
    service.kill()
    service.start()
    again = http.stream("through", ttl="60s", linger="60s", lockID=line["lockID"])
    found = again.next()
    assert found is not None
    assert found["token"] == line["token"]
    again.close()
    http.close()


def test_events_resume_from_the_cursor_after_a_crash(service: ServiceProcess) -> None:
    http = Http(service.url)
    held = http.lock("told").json
    cursor = http.status("told")["cursor"] - 1
    service.kill()
    service.start()
    http.unlock("told", held["lockID"])
    with http.lines("GET", f"/v1.0-alpha2/events?after={cursor}") as events:
        lines = [events.next() for _ in range(3)]
    assert [line["event"] for line in lines if line] == ["granted", "opened", "ended"]
    http.close()


def test_audit_file_has_one_line_per_decision_and_its_chain_verifies(
    service: ServiceProcess, tmp_path: Path
) -> None:
    http = Http(service.url)
    for number in range(10):
        held = http.lock(f"a{number}").json
        if number % 2:
            http.unlock(f"a{number}", held["lockID"])
        else:
            http("DELETE", f"/v1.0-alpha2/lock/a{number}")
    http.close()
    service.kill()
    file = tmp_path / "audit.jsonl"
    written = file.read_text().splitlines()
    # As if the crash had come before the last lines were written, and in the middle of one.
    file.write_text("\n".join(written[:-3]) + "\n" + written[-3][:20])
    service.start()
    service.stop()
    lines = [x for x in file.read_text().splitlines() if x != written[-3][:20]]
    assert lines[: len(written)] == written
    entries = [entry_of({k: v for k, v in json.loads(x).items() if k != "store"}) for x in lines]
    number, digest = 0, NO_HASH
    for entry in entries:
        assert follows(entry, number, digest)
        number, digest = entry.number, entry.hash
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (kinds.count("granted"), kinds.count("ended")) == (10, 10)
    how = [json.loads(line).get("how") for line in lines]
    assert (how.count("forced"), how.count("released")) == (5, 5)
    altered = [line.replace('"owner": ""', '"owner": "x"') for line in lines]
    assert altered != lines
    changed = entry_of({k: v for k, v in json.loads(altered[1]).items() if k != "store"})
    assert not follows(changed, entries[0].number, entries[0].hash)


def test_second_service_on_the_same_folder_is_refused(service: ServiceProcess) -> None:
    other = ServiceProcess(service.store)
    with pytest.raises(AssertionError, match="another lock service"):
        other.start()
    assert other.popen is not None
    assert other.popen.wait(60) == 4
    assert other.popen.stdout is not None
    other.popen.stdout.close()


def test_shutdown_answers_waiters_and_ends_streams(service: ServiceProcess) -> None:
    http = Http(service.url)
    stream = http.stream("stopped", ttl="60s")
    stream.next()
    answers: list[int] = []
    waiter = threading.Thread(
        target=lambda: answers.append(Http(service.url).lock("stopped", wait="110s").status)
    )
    waiter.start()
    eventually(lambda: http.status("stopped")["waiters"] == 1)
    assert service.stop() == 0
    waiter.join(60)
    assert answers == [503]
    line = stream.next()
    assert line is not None
    assert "shutting down" in line["error"]
    http.close()
    service.start()
    again = Http(service.url)
    assert again.lock("stopped", immediate=True).status == 200, "the stream's lock was given back"
    again.close()
