"""Procedures that show what was done to a table, and what it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from statistics import fmean, pstdev
from typing import Final

from tidelock.pipeline.sql.procedures.procedure import (
    TABLE,
    Argument,
    Call,
    Procedure,
    Row,
    limit,
)
from tidelock.table.timeline.instant import Instant


def _show_commits(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        writes = (entry for entry in table.history() if entry.action.writes_data)
        return [
            (
                entry.requested,
                entry.completion,
                entry.action.value,
                entry.operation,
                entry.bytes_written,
                entry.files,
                entry.rows_written,
                entry.rows_inserted,
                entry.rows_updated,
                entry.rows_deleted,
            )
            for entry in islice(writes, call["limit"])
        ]


def _show_timeline(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        return list(islice(map(_instant, reversed(table.timeline)), call["limit"]))


def _instant(instant: Instant) -> Row:
    done = instant.completion if instant.is_completed else None
    return instant.requested, instant.action.value, instant.state.name, done


def _show_properties(call: Call) -> Iterable[Row]:
    with call.opened() as table:
        every = {**table.properties.values, **call.entry.properties}
    return list(islice(sorted(every.items()), call["limit"]))


def _file_sizes(call: Call) -> Iterable[Row]:
    """Yield the sizes of base files by the write that made them, newest first, and of all."""
    wanted = call["partition_path"]
    by_write: dict[str, list[int]] = {}
    with call.opened() as table:
        for piece in table.files():
            if piece.base is not None and (not wanted or piece.partition == wanted):
                by_write.setdefault(piece.base.instant, []).append(piece.base.size_bytes)
    newest = islice(sorted(by_write.items(), reverse=True), call["limit"])
    every = [size for sizes in by_write.values() for size in sizes]
    yield from (_sizes(instant, sizes) for instant, sizes in newest)
    if every:
        yield _sizes("ALL", every)


def _sizes(name: str, sizes: list[int]) -> Row:
    ordered = sorted(sizes)
    at = (ordered[int(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.95))
    tenth, half, most = at
    return (
        name,
        ordered[0],
        tenth,
        half,
        fmean(ordered),
        most,
        ordered[-1],
        len(ordered),
        pstdev(ordered),
    )


def _show_partitions(call: Call) -> Iterator[Row]:
    counts: dict[str, list[int]] = {}
    with call.opened() as table:
        for piece in table.files():
            logs = sum(log.size_bytes for log in piece.logs)
            base = 0 if piece.base is None else piece.base.size_bytes
            counts.setdefault(piece.partition, []).append(base + logs)
    for partition, sizes in islice(sorted(counts.items()), call["limit"]):
        yield partition, len(sizes), sum(sizes)


TIMELINE: Final = (
    Procedure(
        "show_commits",
        "the writes of a table, newest first",
        (TABLE, limit(10)),
        "commit_time string, completion_time string, action string, operation string,"
        " total_bytes_written bigint, total_files_written bigint, total_records_written bigint,"
        " total_records_inserted bigint, total_update_records_written bigint,"
        " total_records_deleted bigint",
        _show_commits,
    ),
    Procedure(
        "show_timeline",
        "every action on the active timeline in its furthest state, newest first",
        (TABLE, limit(20)),
        "instant_time string, action string, state string, completed_time string",
        _show_timeline,
    ),
    Procedure(
        "show_table_properties",
        "what a table is, and the options that the catalog keeps for it",
        (TABLE, limit(200)),
        "key string, value string",
        _show_properties,
    ),
    Procedure(
        "stats_file_sizes",
        "sizes of base files, in bytes, by the write that made them",
        (TABLE, Argument("partition_path", str, ""), limit(10)),
        "commit_time string, min bigint, 10th bigint, 50th bigint, avg double, 95th bigint,"
        " max bigint, num_files bigint, stddev double",
        _file_sizes,
    ),
    Procedure(
        "show_partitions",
        "the partitions of a table, their file groups and bytes",
        (TABLE, limit(1000)),
        "partition string, file_groups bigint, bytes bigint",
        _show_partitions,
    ),
)
