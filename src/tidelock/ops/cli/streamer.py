"""`tidelock streamer`: from a topic, a folder, a table or a database into a table."""

from __future__ import annotations

import signal
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidelock.base.errors import ConfigInvalid
from tidelock.ops.cli import options
from tidelock.ops.cli import streamer_options as s
from tidelock.ops.cli.output import Output, duration, error_facts, kind_of
from tidelock.ops.cli.stopping import Stopping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelock.pipeline.streamer.running import Event, Totals
    from tidelock.pipeline.streamer.settings import Asked

_NO_NEWS = "nonewdataterminationstrategy"
_ROUNDS = "max.rounds.without.new.data.to.shutdown"
_ROUNDS_DEFAULT = 3


def streamer(
    *,
    target_base_path: s.TargetBasePath,
    source_class: s.SourceClass,
    target_table: s.TargetTable = None,
    source_ordering_field: s.OrderingField = None,
    op: s.Operation = "UPSERT",
    table_type: s.TableKind = None,
    schemaprovider_class: s.ProviderClass = None,
    transformer_class: s.TransformerClass = None,
    checkpoint: s.CheckpointPlace = None,
    ignore_checkpoint: s.IgnoreCheckpoint = None,
    initial_checkpoint: s.InitialCheckpoint = None,
    filter_dupes: s.FilterDupes = False,
    source_limit: s.SourceLimit = None,
    continuous: s.Continuous = False,
    min_sync_interval: s.MinInterval = 0.0,
    termination: s.Termination = None,
    retries: s.Retries = 3,
    retry_interval: s.RetryInterval = 30.0,
    disable_compaction: s.NoCompaction = False,
    writer_id: s.WriterId = None,
    props_file: options.PropsFile = None,
    hoodie_conf: s.HoodieConf = None,
    spark_conf: s.SparkConf = None,
    spark_master: s.SparkMaster = None,
    spark_memory: s.SparkMemory = "1g",
    as_json: options.Json = False,
) -> None:
    """Read records from a source into a table, each once, and remember how far it came.

    Where it came to stands in the commit of each batch. After a crash it goes on from there, and
    any number of streamers may write one table. SIGTERM and Ctrl-C end it after the batch under
    way.

        tidelock streamer --source-class JsonDFSSource --target-base-path s3://lake/orders \\
            --hoodie-conf hoodie.streamer.source.dfs.root=s3://landing/orders \\
            --hoodie-conf hoodie.datasource.write.recordkey.field=id
    """
    from tidelock.pipeline.streamer.session import streamer_session
    from tidelock.pipeline.streamer.settings import Asked

    properties = _properties(hoodie_conf, props_file, writer_id)
    asked = Asked(
        target_base_path=target_base_path,
        source_class=source_class,
        target_table=target_table,
        source_ordering_field=source_ordering_field,
        op=op,
        table_type=table_type,
        schemaprovider_class=schemaprovider_class,
        transformer_class=transformer_class,
        checkpoint=checkpoint,
        ignore_checkpoint=ignore_checkpoint,
        initial_checkpoint_provider=initial_checkpoint,
        filter_dupes=filter_dupes,
        source_limit=source_limit,
        continuous=continuous,
        min_sync_interval_s=min_sync_interval,
        rounds_without_data_max=_rounds(termination, properties),
        retries_max=retries,
        retry_interval_s=retry_interval,
        disable_compaction=disable_compaction,
        properties=properties,
    )
    settings = _of_spark(spark_conf, spark_master)
    app = f"tidelock streamer {target_table or target_base_path}"
    with streamer_session(app, memory=spark_memory, settings=settings) as spark:
        _run(spark, asked, Output(as_json=as_json))


def _properties(
    confs: list[str] | None, file: str | None, writer_id: str | None
) -> dict[str, object]:
    found = options.given_settings(confs, file, option="--hoodie-conf")
    if writer_id is not None:
        found["tidelock.streamer.writer.id"] = writer_id
    return found


def _of_spark(confs: list[str] | None, master: str | None) -> dict[str, str]:
    found = options.given_settings(confs, None, option="--spark-conf")
    if master is not None:
        found["spark.master"] = master
    return {name: str(value) for name, value in found.items()}


def _run(spark: SparkSession, asked: Asked, output: Output) -> None:
    from tidelock.pipeline.streamer.running import run_on, run_once
    from tidelock.pipeline.streamer.sync import Streamer

    def tell(event: Event) -> None:
        _tell(event, output)

    working = Streamer(spark, asked)
    with Stopping() as stopping:
        stopping.note_only()
        try:
            run = run_on if asked.continuous else run_once
            totals = run(working, stop=stopping, tell=tell)
        finally:
            # Ending takes a moment, and a second signal must not cut it short.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            working.close()
    _conclude(totals, asked, output)


def _tell(event: Event, output: Output) -> None:
    from tidelock.pipeline.streamer.running import Failed, Idle
    from tidelock.pipeline.streamer.sync import Synced

    match event:
        case Synced():
            report = asdict(event.report)
            facts = {
                "event": "batch",
                "version": event.version,
                "checkpoint": event.checkpoint,
                "taken": event.taken,
                "rows": event.rows,
                "malformed": event.malformed,
                "duration_ms": event.duration_ms,
                "lag_ms": event.lag_ms,
                "report": report,
            }
            output.result(facts, _line(event))
        case Failed(error, attempt, pause_s):
            told = error_facts(kind_of(error), error.message, error.hint)
            facts = {"event": "failed", "attempt": attempt, "retry_in_s": pause_s, **told}
            output.result(facts, f"attempt {attempt}: {error}; again in {pause_s:g} s")
        case Idle(rounds):
            if rounds == 1:
                output.result({"event": "idle"}, "waiting for records")


def _line(event: object) -> str:
    from tidelock.pipeline.streamer.sync import Synced

    assert isinstance(event, Synced)
    if event.repeated:
        return f"batch {event.version} was written by another streamer of this id"
    speed = event.rows * 1000 / max(event.duration_ms, 1)
    aside = f", {event.malformed} put aside" if event.malformed else ""
    late = "" if event.lag_ms is None else f", {duration(event.lag_ms)} behind"
    return (
        f"batch {event.version}  {event.report.instant}  {event.rows:,} rows{aside} in"
        f" {duration(event.duration_ms)} ({speed:,.0f}/s){late}"
    )


def _conclude(totals: Totals, asked: Asked, output: Output) -> None:
    said = f"{totals.rows:,} rows in {totals.batches} batches"
    aside = f", {totals.malformed} records put aside" if totals.malformed else ""
    output.result(
        {"event": "end", "target": asked.target_base_path, **asdict(totals)},
        f"{asked.target_base_path}  {said}{aside}" if totals.batches else "nothing new",
    )


def _rounds(named: str | None, properties: dict[str, object]) -> int | None:
    """Return after how many rounds without news to end; None for never."""
    rounds = properties.pop(_ROUNDS, None)
    if named is None:
        return None
    if named.rpartition(".")[2].lower() != _NO_NEWS:
        raise ConfigInvalid(
            f"the termination strategy {named} is not known",
            hint="use NoNewDataTerminationStrategy",
        )
    return _ROUNDS_DEFAULT if rounds is None else int(str(rounds))
