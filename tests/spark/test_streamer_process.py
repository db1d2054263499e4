"""The streamer as a program: killed, ended, misused; and the loop that it runs."""

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
from tidelock.base.clock import SystemClock
from tidelock.base.errors import Conflict, Unavailable
from tidelock.pipeline.streamer.running import Event, Failed, Idle, run_on, run_once
from tidelock.pipeline.streamer.settings import Asked
from tidelock.pipeline.streamer.sync import Streamer, Synced
from tidelock.testing.streamerchaos import Chaos, run


class Told:
    """Remembers the events of a run, and ends it when it has heard enough."""

    def __init__(self, enough: Callable[[list[Event]], bool]) -> None:
        self.events: list[Event] = []
        self._enough = enough

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def wait(self, duration_s: float | None) -> bool:
        del duration_s  # nobody waits in these tests
        return self._enough(self.events)


def asked(tmp_path: Path) -> Asked:
    (tmp_path / "in").mkdir(exist_ok=True)
    properties = {
        "hoodie.streamer.source.dfs.root": str(tmp_path / "in"),
        "hoodie.datasource.write.recordkey.field": "id",
    }
    return Asked(str(tmp_path / "table"), "JsonDFSSource", properties=properties)


def put(tmp_path: Path, number: int) -> None:
    (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number}))


def test_a_streamer_that_is_killed_and_started_again_takes_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    del spark  # where there is no Spark there is no streamer
    found = run(Chaos("files", records=4_000, kills=2, seed=7), tmp_path)
    assert found.problems == []
    assert (found.rows, found.distinct, found.exit_code) == (4_000, 4_000, 0)


def test_a_mistake_ends_the_program_with_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidelock.ops.submit", "streamer", "--json"]
    command += ["--source-class", "JsonDFSSource", "--target-base-path", str(tmp_path / "t")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"] == (
        "Property hoodie.streamer.source.dfs.root does not exist!"
    )
    assert "Traceback" not in done.stderr


def test_a_continuous_run_ends_between_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    wanted = replace(asked(tmp_path), continuous=True, source_limit=1)
    for number in range(5):
        put(tmp_path, number)
    told = Told(lambda events: sum(isinstance(event, Synced) for event in events) == 2)
    streamer = Streamer(spark, wanted)
    totals = run_on(streamer, stop=told, tell=told)
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


def test_a_continuous_run_may_end_when_nothing_new_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = replace(asked(tmp_path), continuous=True, rounds_without_data_max=2)
    put(tmp_path, 1)
    told = Told(lambda _: False)
    streamer = Streamer(spark, wanted)
    run_on(streamer, stop=told, tell=told)
    streamer.close()
    assert [type(event) for event in told.events] == [Synced, Idle, Idle]


class FailingSource:
    """A source that cannot be reached for a while."""

    name = "failing"
    limit = 1
    least = 1

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def next(self, since: str | None, limit: int) -> None:
        del since, limit
        if self.failures > 0:
            self.failures -= 1
            raise Unavailable("the source does not answer")

    def close(self) -> None:
        pass


def test_what_may_pass_is_tried_again_as_often_as_asked(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = replace(asked(tmp_path), retries_max=2, retry_interval_s=0.0)
    told = Told(lambda _: False)
    streamer = Streamer(spark, wanted, clock=SystemClock())
    streamer.__dict__["source"] = FailingSource(2)
    run_once(streamer, stop=told, tell=told)
    assert [type(event) for event in told.events] == [Failed, Failed]
    streamer.__dict__["source"] = FailingSource(3)
    with pytest.raises(Unavailable, match="the source does not answer"):
        run_once(streamer, stop=told, tell=told)


def test_a_batch_that_another_streamer_wrote_is_not_counted_as_ones_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asked(tmp_path)
    put(tmp_path, 1)
    late, first = Streamer(spark, wanted), Streamer(spark, wanted)
    took = Streamer._take

    def overtaken(self: Streamer, *args: object) -> Synced:
        if self is late:
            monkeypatch.setattr(Streamer, "_take", took)
            assert first.sync() is not None
        return took(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Streamer, "_take", overtaken)
    told = Told(lambda _: False)
    totals = run_once(late, stop=told, tell=told)
    late.close()
    first.close()
    assert totals.batches == 0
    assert [event.repeated for event in told.events if isinstance(event, Synced)] == [True]
    assert late.metrics.snapshot().counters == {"streamer.batches.repeated": 1}
    with tl.Table.open(wanted.target_base_path) as table:
        assert table.read().num_rows == 1


def test_a_merge_on_read_table_is_compacted_beside_the_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = asked(tmp_path)
    few = {**wanted.properties, "hoodie.compact.inline.max.delta.commits": "2"}
    wanted = replace(
        wanted,
        continuous=True,
        table_type="MERGE_ON_READ",
        rounds_without_data_max=1,
        source_limit=1,
        properties=few,
    )
    for number in range(4):
        put(tmp_path, number)
    (tmp_path / "in" / "again.json").write_text(json.dumps({"id": 1}))
    told = Told(lambda _: False)
    streamer = Streamer(spark, wanted)
    run_on(streamer, stop=told, tell=told)
    streamer.close()
    with tl.Table.open(wanted.target_base_path) as table:
        actions = [str(instant.action) for instant in table.timeline if instant.is_completed]
        assert sorted(table.read().column("id").to_pylist()) == [0, 1, 2, 3]
    assert "commit" in actions


def test_streamers_of_one_id_that_are_always_late_say_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = asked(tmp_path)
    put(tmp_path, 1)
    streamer = Streamer(spark, wanted)
    done = streamer.sync()
    assert done is not None
    again = replace(done, report=replace(done.report, repeated=True))
    monkeypatch.setattr(Streamer, "sync", lambda _: again)
    told = Told(lambda _: False)
    with pytest.raises(Conflict, match="are always first"):
        run_once(streamer, stop=told, tell=told)
    streamer.close()


def test_the_recipe_of_a_streamer_and_a_backfill_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Path(__file__).parents[2] / "examples" / "streamer_and_backfill.py"
    runpy.run_path(str(recipe))["run"](spark, tmp_path)
    assert "900 rows, each as the later event has it" in capsys.readouterr().out
