"""Tasks that fail, run twice or are killed: the table has each row once, and no orphaned file."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.spark.bench import KEYS, KEYS_FLAT, MERGE, SCHEMA, Bench, rows
from tidelock.core.errors import Conflict, InvalidInput
from tidelock.execution.engine import PrepareRule, rows_by_task
from tidelock.execution.spark import large_write, write
from tidelock.execution.spark.arrow_column import to_ipc
from tidelock.execution.spark.job import CANCEL_POLL_S, decode_outcome, run_job
from tidelock.execution.spark.write import SparkWriter

SPREAD = {"driver_work_bytes_max": 0}
LARGE = {"collected_bytes_max": 0, "driver_bytes_max": 0, "files_bytes_max": 0}

Work = Callable[..., Any]


def after(work: Work, trouble: Callable[[int], None]) -> Work:
    """Return the work of a task with trouble after it; `trouble` receives the attempt number."""

    def run(*args: Any) -> Any:
        done = work(*args)
        context = TaskContext.get()
        assert context is not None
        trouble(context.attemptNumber())
        return done

    return run


def fails_once(attempt: int) -> None:
    if attempt == 0:
        raise OSError("the first attempt fails after its file is there")


def dies_once(attempt: int) -> None:
    if attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("trouble", [fails_once, dies_once])
@pytest.mark.parametrize("limits", [SPREAD, LARGE], ids=["spread", "large"])
def test_task_that_is_run_again_finds_its_own_file(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: Callable[[int], None],
    limits: dict[str, int],
) -> None:
    def troubled(*args: Any) -> Work:
        return after(runner(*args), trouble)

    def troubled_stage(*args: Any) -> large_write.Stage:
        inner = writing(*args)

        def stage(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            found = list(inner(batches))
            context = TaskContext.get()
            assert context is not None
            trouble(context.attemptNumber())
            yield from found

        return stage

    runner, writing = write._runner, large_write.writing_stage
    monkeypatch.setattr(write, "_runner", troubled)
    monkeypatch.setattr(large_write, "writing_stage", troubled_stage)
    bench = Bench(tmp_path / "spark", spark=spark, limits=limits)
    results = bench.upsert(rows(range(40)))
    expected = Bench(tmp_path / "local")
    expected.upsert(rows(range(40)))
    assert bench.placed() == expected.placed()
    assert bench.seen() == expected.seen()
    files = {path.relative_to(bench.folder).as_posix() for path in bench.folder.rglob("*.parquet")}
    assert files == {result.stat.path for result in results}


def test_speculative_attempts_leave_one_file(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(tmp_path / "spark", spark=spark, limits=SPREAD)
    writer = bench.engine()
    assert isinstance(writer, SparkWriter)
    prepared = writer.prepare(
        bench.data(rows(range(20))), PrepareRule(SCHEMA, KEYS, MERGE, where="twins")
    )
    tagged = writer.tag(prepared, bench.tag_rule())
    plan = bench.plan(tagged.profile, bulk=False)
    work = list(rows_by_task(tagged.rows, plan))
    context = bench.context()
    runs = write._runner(bench.address, context)
    items = [(task, to_ipc(table)) for task, table in work]
    # Each task runs twice at the same time, like with speculative execution.
    twice = spark.sparkContext.parallelize([*items, *items], 2 * len(items)).map(runs).collect()
    found = [decode_outcome(each) for each in twice]
    assert len(found) == 2 * len(items)
    by_slot = dict(found)
    files = {path.relative_to(bench.folder).as_posix() for path in bench.folder.rglob("*.parquet")}
    assert files == {each.stat.path for results in by_slot.values() for each in results}
    for slot, results in found:
        assert [each.stat.path for each in results] == [each.stat.path for each in by_slot[slot]]


def test_job_that_must_fail_is_cancelled_early(spark: SparkSession) -> None:
    context = spark.sparkContext
    begun = threading.Event()

    def is_cancelled() -> str | None:
        if not context.statusTracker().getJobIdsForGroup("cancelled"):
            return None
        begun.set()
        return "another write took its file groups"

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        threading.Event().wait(60)
        yield from batches

    job = spark.range(0, 2, 1, 2).mapInArrow(slow, "id long")
    with pytest.raises(Conflict, match="another write took its file groups"):
        run_job(spark, "a long write", job.collect, group="cancelled", is_cancelled=is_cancelled)
    assert begun.is_set()
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_job_that_begins_after_it_was_cancelled_is_cancelled_too(spark: SparkSession) -> None:
    asked = threading.Event()

    def is_cancelled() -> str:
        asked.set()
        return "another write took its file groups"

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        threading.Event().wait(60)
        yield from batches

    def late() -> object:
        assert asked.wait(60)
        threading.Event().wait(2 * CANCEL_POLL_S)
        return spark.range(0, 2, 1, 2).mapInArrow(slow, "id long").collect()

    with pytest.raises(Conflict, match="another write took its file groups"):
        run_job(spark, "a long write", late, group="cancelled late", is_cancelled=is_cancelled)


@pytest.mark.parametrize("limits", [{}, LARGE], ids=["driver", "large"])
def test_row_without_a_key_is_rejected(
    spark: SparkSession, tmp_path: Path, limits: dict[str, int]
) -> None:
    bench = Bench(tmp_path / "spark", spark=spark, limits=limits)
    table = rows(range(3)).set_column(0, SCHEMA.field("id"), pa.array(["a", None, "c"]))
    with pytest.raises(InvalidInput, match="record key"):
        bench.upsert(table)
    assert not list(bench.folder.rglob("*.parquet"))


def test_rows_that_are_only_added_stay_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    flat = Bench(tmp_path / "flat", spark=spark, limits=LARGE, keys=KEYS_FLAT)
    source = tmp_path / "source"
    spark.createDataFrame(rows(range(40))).repartition(2).write.parquet(str(source))
    results = flat.bulk(spark.read.parquet(str(source)), slots_min=4)
    assert len(results) <= 4
    assert sorted(row["id"] for row in flat.seen()) == [f"k{number:05}" for number in range(40)]
