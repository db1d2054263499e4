"""The streamer as a process: killed, stopped, misconfigured; and its loop."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidelock as tl
from testkit.streamerchaos import Chaos, run
from tidelock.core.errors import Conflict, Unavailable
from tidelock.core.system import SystemClock
from tidelock.streamer.batch import Streamer, SyncResult
from tidelock.streamer.config import StreamerRequest
from tidelock.streamer.run import Event, Idle, StreamerFailed, run_continuously, run_once


class Events:
    """Records the events of a run, and stops it when a condition is met."""

    def __init__(self, enough: Callable[[list[Event]], bool]) -> None:
        self.events: list[Event] = []
        self._enough = enough

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def wait(self, duration_s: float | None) -> bool:
        del duration_s  # these tests do not wait
        return self._enough(self.events)


def streamer_request(tmp_path: Path) -> StreamerRequest:
    (tmp_path / "in").mkdir(exist_ok=True)
    properties = {
        "hoodie.streamer.source.dfs.root": str(tmp_path / "in"),
        "hoodie.datasource.write.recordkey.field": "id",
    }
    return StreamerRequest(str(tmp_path / "table"), "JsonDFSSource", properties=properties)


def put(tmp_path: Path, number: int) -> None:
    (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number}))


@pytest.mark.timeout(900)  # three sessions of Spark, one after another
def test_streamer_that_is_killed_and_restarted_stores_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    del spark  # skips the test without Spark
    found = run(Chaos("files", records=4_000, kills=2, seed=7), tmp_path)
    assert found.problems == []
    assert (found.rows, found.distinct, found.exit_code) == (4_000, 4_000, 0)


def test_configuration_error_prints_a_message_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelock.cli.submit", "streamer", "--json"]
    command += ["--source-class", "JsonDFSSource", "--target-base-path", str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == (
        "hoodie.streamer.source.dfs.root: required, not set"
    )
    assert "Traceback" not in done.stderr


def test_continuous_run_ends_between_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    request = replace(streamer_request(tmp_path), continuous=True, source_limit=1)
    for number in range(5):
        put(tmp_path, number)
    events = Events(lambda events: sum(isinstance(event, SyncResult) for event in events) == 2)
    streamer = Streamer(spark, request)
    totals = run_continuously(streamer, stop=events, on_event=events)
    assert (totals.batches, totals.rows) == (2, 2)
    told_of = streamer.metrics.snapshot()
    assert told_of.counters == {
        "streamer.batches": 2,
        "streamer.rows": 2,
        "streamer.malformed": 0,
    }
    assert set(told_of.gauges) == {"streamer.limit", "streamer.lag"}
    assert told_of.timers["streamer.batch"].count == 2
    streamer.close()


def test_continuous_run_can_stop_when_the_source_is_idle(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = replace(streamer_request(tmp_path), continuous=True, rounds_without_data_max=2)
    put(tmp_path, 1)
    events = Events(lambda _: False)
    streamer = Streamer(spark, request)
    run_continuously(streamer, stop=events, on_event=events)
    streamer.close()
    assert [type(event) for event in events.events] == [SyncResult, Idle, Idle]


class FailingSource:
    """A source that is temporarily unavailable."""

    name = "failing"
    limit = 1
    limit_min = 1

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def next(self, since: str | None, limit: int) -> None:
        del since, limit
        if self.failures > 0:
            self.failures -= 1
            raise Unavailable("the source does not answer")

    def close(self) -> None:
        pass


def test_transient_errors_are_retried_as_configured(spark: SparkSession, tmp_path: Path) -> None:
    request = replace(streamer_request(tmp_path), retries_max=2, retry_interval_s=0.0)
    events = Events(lambda _: False)
    streamer = Streamer(spark, request, clock=SystemClock())
    streamer.__dict__["source"] = FailingSource(2)
    run_once(streamer, stop=events, on_event=events)
    assert [type(event) for event in events.events] == [StreamerFailed, StreamerFailed]
    streamer.__dict__["source"] = FailingSource(3)
    with pytest.raises(Unavailable, match="the source does not answer"):
        run_once(streamer, stop=events, on_event=events)


def test_batch_of_another_streamer_is_not_counted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = streamer_request(tmp_path)
    put(tmp_path, 1)
    late, first = Streamer(spark, request), Streamer(spark, request)
    took = Streamer._write_batch

    def sync_after_another(self: Streamer, *args: object) -> SyncResult:
        if self is late:
            monkeypatch.setattr(Streamer, "_write_batch", took)
            assert first.sync() is not None
        return took(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Streamer, "_write_batch", sync_after_another)
    events = Events(lambda _: False)
    totals = run_once(late, stop=events, on_event=events)
    late.close()
    first.close()
    assert totals.batches == 0
    assert [event.repeated for event in events.events if isinstance(event, SyncResult)] == [True]
    assert late.metrics.snapshot().counters == {"streamer.batches.repeated": 1}
    with tl.Table.open(request.target_base_path) as table:
        assert table.read().num_rows == 1


def test_merge_on_read_table_is_compacted_in_the_background(
    spark: SparkSession, tmp_path: Path
) -> None:
    request = streamer_request(tmp_path)
    few = {**request.properties, "hoodie.compact.inline.max.delta.commits": "2"}
    request = replace(
        request,
        continuous=True,
        table_type="MERGE_ON_READ",
        rounds_without_data_max=1,
        source_limit=1,
        properties=few,
    )
    for number in range(4):
        put(tmp_path, number)
    (tmp_path / "in" / "again.json").write_text(json.dumps({"id": 1}))
    events = Events(lambda _: False)
    streamer = Streamer(spark, request)
    run_continuously(streamer, stop=events, on_event=events)
    streamer.close()
    with tl.Table.open(request.target_base_path) as table:
        actions = [str(instant.action) for instant in table.timeline if instant.is_completed]
        assert sorted(table.read().column("id").to_pylist()) == [0, 1, 2, 3]
    assert "commit" in actions


def test_streamer_whose_batches_are_always_committed_by_others_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = streamer_request(tmp_path)
    put(tmp_path, 1)
    streamer = Streamer(spark, request)
    done = streamer.sync()
    assert done is not None
    again = replace(done, report=replace(done.report, repeated=True))
    monkeypatch.setattr(Streamer, "sync", lambda _: again)
    events = Events(lambda _: False)
    with pytest.raises(Conflict, match="batches were committed by other streamers"):
        run_once(streamer, stop=events, on_event=events)
    streamer.close()


def test_example_of_a_streamer_and_a_backfill_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Path(__file__).parents[2] / "examples" / "streamer_and_backfill.py"
    runpy.run_path(str(recipe))["run"](spark, tmp_path)
    assert "900 rows, each with its larger ts" in capsys.readouterr().out
