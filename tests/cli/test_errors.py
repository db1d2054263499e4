"""Users see no traceback: every error is a message, a hint and an exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import CODE, Program, end, java_record, now_ms, plant, start
from tidelock.cli import lock as lock_module
from tidelock.cli.signals import Stopped
from tidelock.core.errors import StoreUnreachable

COMMANDS = ("status", "watch", "acquire", "doctor", "force-release", "audit", "run")


def _extra(command: str) -> list[str]:
    return {"audit": ["status"], "run": ["--", "true"]}.get(command, [])


IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("resource", "says"),
    [
        ("a/../b", "'..' part"),
        ("a//b", "empty part"),
        ("a\0b", "NUL"),
        ("x" * 10_240, "too long"),
        ("s3://bucket/a//b", "empty part"),
        ("s3://bucket/a/../b", "'..' part"),
        ("s3:///table", "expected a bucket"),
        ("ftp://host/x", "no store for the scheme"),
        ("", "empty"),
        (" x", "spaces around it"),
        ("s3://b/t?x=1", "'?' or '#'"),
        ("tab\tle", "control characters"),
    ],
)
def test_invalid_resource_name_is_refused(
    tidelock: Program, command: str, resource: str, says: str
) -> None:
    ended = tidelock("lock", command, resource, *_extra(command))
    assert ended.code in (2, 10)
    assert says in ended.err
    assert len(ended.err) < 600


def test_undecodable_name_is_shown_escaped(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", CODE, "lock", "status", b"bad\xff/../name"],
        capture_output=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert process.returncode == 2
    assert b"udcff" in process.stderr
    assert b"Traceback" not in process.stderr


def test_json_errors_are_one_object_on_stdout(tidelock: Program) -> None:
    ended = tidelock("lock", "status", "a/../b", "--json")
    assert ended.facts["error"]["kind"] == "invalid_input"
    assert "'..' part" in ended.facts["error"]["message"]
    assert ended.facts["error"]["hint"]
    assert ended.err == ""


def test_json_errors_of_run_leave_stdout_to_the_command(tidelock: Program) -> None:
    ended = tidelock("lock", "run", "a/../b", "--json", "--", "true")
    assert ended.out == ""
    assert json.loads(ended.err)["error"]["kind"] == "invalid_input"


def test_json_flag_of_the_wrapped_command_is_passed_through(tidelock: Program) -> None:
    ended = tidelock("lock", "run", "a/../b", "--", "true", "--json")
    assert ended.err.startswith("tidelock: ")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["lock", "frobnicate"], "No such command"),
        (["lock", "status"], "Missing argument"),
        (["lock", "status", "x", "--frob"], "No such option"),
        (["lock", "audit", "x", "frobnicate"], "frobnicate"),
        (["lock", "run", "x"], "Missing argument"),
        (["lock", "acquire", "x", "--validity", "long"], "--validity"),
        (["lock", "acquire", "x", "--validity", "5", "--renew", "1"], "at least 10"),
        (["lock", "acquire", "x", "--validity", "9"], "at least 10"),
        (["lock", "acquire", "x", "--wait", "1", "--no-wait"], "cannot be used together"),
        (["lock", "acquire", "x", "--wait", "-1"], "expected 0 or more"),
        (["lock", "acquire", "x", "--wait", "nan"], "expected 0 or more"),
        (["lock", "acquire", "x", "--for", "-1"], "expected 0 or more"),
        (["lock", "acquire", "x", "--detach", "--for", "1"], "--detach"),
        (["lock", "run", "x", "--kill-after", "-1", "--", "true"], "expected 0 or more"),
        (["lock", "watch", "x", "--interval", "0"], "expected 0.05 or more"),
        (["lock", "status", "x", "--prop", "novalue"], "KEY=VALUE"),
        (["lock", "status", "x", "--prop", "hoodie.write.lock.wait_tim_ms=1"], "unknown setting"),
        (
            ["lock", "status", "x", "--prop", "hoodie.write.lock.wait_time_ms=soon"],
            "expected an integer",
        ),
        (
            ["lock", "status", "x", "--prop", "hoodie.write.lock.provider=Zk"],
            "expected a lock provider",
        ),
        (
            ["lock", "watch", "x", "--prop", f"hoodie.write.lock.provider={IN_PROCESS}"],
            "requires the storage lock",
        ),
        (
            ["lock", "force-release", "x", "--prop", f"hoodie.write.lock.provider={IN_PROCESS}"],
            "add --yes",
        ),
        (["lock", "audit", "x", "status", "--dry-run"], "only be used with cleanup"),
        (["lock", "audit", "x", "cleanup", "--keep-files"], "only be used with disable"),
        (["lock", "audit", "x", "cleanup", "--age-days", "-1"], "expected 0 or more"),
        (["demo", "--seconds", "-1"], "expected a number from 0"),
    ],
)
def test_usage_error_exits_with_2_without_side_effects(
    tidelock: Program,
    args: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = tidelock(*args)
    assert ended.code == 2
    assert says in ended.err
    assert list(tmp_path.iterdir()) == []


def test_no_arguments_show_the_help(tidelock: Program) -> None:
    ended = tidelock()
    assert "Usage: tidelock" in ended.out + ended.err
    assert ended.code in (0, 2)


def test_version_is_shown(tidelock: Program) -> None:
    ended = tidelock("--version")
    assert ended.code == 0
    assert ended.out.startswith("tidelock ")


def test_store_error_exits_with_its_code(
    tidelock: Program, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise StoreUnreachable("the store sleeps", hint="wake it")

    monkeypatch.setattr(lock_module, "inspect_lock", unreachable)
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 3
    assert "the store sleeps" in ended.err
    assert "wake it" in ended.err


def test_internal_error_exits_with_70_and_explains_how_to_get_details(
    tidelock: Program, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(lock_module, "inspect_lock", broken)
    ended = tidelock("lock", "status", str(table))
    assert ended.code == 70
    assert "internal error: KeyError" in ended.err
    assert "TIDELOCK_DEBUG=1" in ended.err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Stopped(15), 143)])
def test_interrupt_prints_nothing(
    tidelock: Program,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
) -> None:
    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(lock_module, "inspect_lock", interrupted)
    ended = tidelock("lock", "status", str(table))
    assert (ended.code, ended.out, ended.err) == (code, "", "")


def test_closed_output_pipe_is_not_reported_as_an_error(table: Path) -> None:
    plant(table, java_record(expired=False, valid_until_epoch_ms=now_ms() + 60_000))
    process = start("lock", "watch", str(table), "--renewals", "--interval", "0.05", "--for", "120")
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    # The next change is written to a pipe that no process reads.
    plant(table, java_record(expired=True, valid_until_epoch_ms=now_ms()))
    assert process.stderr is not None
    output = process.stderr.read()
    process.stderr.close()
    assert process.wait(120) in (1, 141)
    assert output == ""


def test_settings_are_read_from_a_properties_file(tidelock: Program, table: Path) -> None:
    props = table / "lock.properties"
    props.write_text("hoodie.write.lock.storage.validity.timeout.secs = 4\n", encoding="utf-8")
    ended = tidelock("lock", "acquire", str(table), "--props", str(props), "--for", "0")
    assert ended.code == 2
    assert "expected at least 10" in ended.err


def test_properties_file_can_be_given_as_a_uri(tidelock: Program, table: Path) -> None:
    props = table / "lock.properties"
    props.write_text("hoodie.write.lock.storage.validity.timeout.secs = 4\n", encoding="utf-8")
    ended = tidelock("lock", "acquire", str(table), "--props", f"file://{props}", "--for", "0")
    assert ended.code == 2
    assert "expected at least 10" in ended.err


def test_missing_properties_file_is_reported(tidelock: Program, table: Path) -> None:
    ended = tidelock("lock", "status", str(table), "--props", str(table / "none.properties"))
    assert ended.code == 8
    assert "none.properties" in ended.err


def test_deprecated_setting_name_is_reported(table: Path) -> None:
    old = "hoodie.write.lock.storage.heartbeat.poll.secs=2"
    ended = end(start("lock", "acquire", str(table), "--prop", old, "--for", "0"))
    assert ended.code == 0
    assert "is the old name of" in ended.err
