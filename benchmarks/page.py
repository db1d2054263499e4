"""Formats results as docs/performance.md and as tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.cycle import GOAL
from benchmarks.figures import Latency
from benchmarks.goals import Goal, goals
from benchmarks.lakes.page import plots as lake_plots
from benchmarks.lakes.page import sections as lake_sections
from benchmarks.merging import Merged
from benchmarks.reasons import WHY
from benchmarks.services import COPYING_GOAL, LATENCY_GOAL, MERGING_GOAL
from benchmarks.streaming import GOAL as STREAMING_GOAL
from benchmarks.suite import PEER_CONTENDERS, Results
from benchmarks.writers import WritersResult

_INTRO = """# Performance

`make bench` measures everything on this page and writes it; the raw numbers are in the folder
`results` of `benchmarks/`. The systems of one table were measured in one run, alternating on one
machine: compare within a table, since another machine changes all of its numbers. All servers run
on the same machine as their clients. A real object store has ten to a hundred times the latency:
ratios to the raw store then come closer to 1, and locks on it are slower than Redis, etcd and
ZooKeeper in the same network by that factor.
"""

_GOALS = """## Goals

Ratios of the best times of one run each (the run with the most rows where there are several), or
of CPU seconds where the machine was shared; the tables below show the runs.
"""

_CYCLE = f"""## Acquire and release, against the raw store

One acquire and release costs two conditional writes when this client was the last to hold the lock.
The baseline is two raw conditional puts of the same size on the same store. Goal: at most {GOAL}
times.
"""

_REQUESTS = """## Requests

The requests that one acquire and release without contention sends to S3. The first client of a
process also reads the audit switch, once a minute for all clients of the process.
"""

_PEERS = f"""## Compared with other lock systems

Uncontended: one client, acquire and release. Contended: {PEER_CONTENDERS} processes, each holding
the lock for about a millisecond and requesting it again at once. A hand-over is a grant to another
contender than the previous one; its time is measured from the end of one critical section to the
beginning of the next. Fairness is Jain's index of grants (1 is even). Queues (etcd, ZooKeeper) are
fair by construction; systems that poll (Redis, this lock) favour the last holder. Redis keeps its
data in memory here; etcd, ZooKeeper and the local store flush each write to disk.
"""

_HANDOVER = """## Hand-over and fairness

Threads in at most eight processes, each holding the lock for about a millisecond and requesting it
again at once. Threads of one process take turns; processes poll, and a process that keeps winning
backs off after about a fifth of a second, which is how long the others wait.
"""

_SERVICE = """## The lock service

Clients of one program, each locking and unlocking its own resource through one connection
(to Redis: 64). The lock service and etcd flush every grant to disk before they answer, many in one
write; Redis answers from memory. Latency is that of a whole cycle. The client program is in Python
and takes its share of the same two cores.
"""

_SCALE = """### Many locks, many streams

The resources of an idle service: all locks are kept alive by one read of the store, so neither
locks nor streams cost the store a request.
"""

_WRITERS = """## Several writers on one table

Separate processes write batches of 100 rows to one table on the local disk at the same time:
*append* adds new rows, *same* upserts 100 keys that all writers share into a table of 1,000 rows,
*disjoint* upserts keys of the writer's own. Every system uses its defaults, including retries.
Failed batches are those whose call raised an error; lost ones were acknowledged and are not in the
table.
"""

_WRITERS_S3 = """### On S3

The same on SeaweedFS, which runs on the same machine and shares the two cores; delta-rs with
conditional puts (`aws_conditional_put=etag`). Goal: twice delta-rs.
"""

_GROWTH = """## Many commits to one table

One-row commits to one table with inline clean and archive. Goal: opening a table of 10,000 commits
takes at most twice as long as opening one of 10.
"""

_TABLE = """## Five million rows through Spark

Ten columns, 16 file groups, local disk, two cores, a warm session, contenders in turn. An upsert
of 10 % changes 400,000 rows and adds 100,000. *Limit*: polars reads, anti-joins and writes the
same files in one process, without table, ordering, keys or flush to disk. *Outer join*: Spark
reads both sides, joins them and writes the result. Goals: copy-on-write upsert at most twice the
limit and three times faster than the join; bulk insert no slower than Spark's own Parquet write;
one column of a compacted table at most 1.2 times native Parquet.
"""

_REWRITING = f"""## Table services

A table of eight files. The baseline of each service: pyarrow reads the same base files and writes
them, in several threads, without reading log files; the fastest of several runs each. Goals: at
least {MERGING_GOAL} times pyarrow's speed where rows are merged, {COPYING_GOAL:.0f} times where
row groups are copied.
"""

_KEEPING = """### Clean and archive, by number of commits

Each run processes 30 one-row writes, however many commits the table has.
"""

_INGESTING = f"""### Writing with concurrent services

Upserts of 100 rows into one merge-on-read table with concurrent compaction, clean and archive.
Goal: the 99th percentile is at most {LATENCY_GOAL} times as long.
"""


_STREAMING = f"""## Micro-batches

Structured Streaming on two cores of one machine, one source, a commit for each micro-batch; the
medians of a whole trigger, including Spark's planning and checkpoints, and of the sink's part.
An upsert looks up every key and may rewrite rows, which a file sink never does. Goal: adding rows
takes at most {STREAMING_GOAL} times as long as with Spark's Parquet sink.
"""

_STREAMER = """## The streamer

JSON records into a copy-on-write table without partitions, on two cores of one machine: rows per
second for a backlog in batches of 100,000 with inferred schemas, and the time from the arrival of
100 records until they are committed, with continuous polling.
"""


_MERGING = """## MERGE INTO

TPC-H's lineitem ({rows:,} rows), Spark on two cores, every system in its own process; seconds (the
best of the rounds) and CPU seconds, on a machine where other work used {others:.1f} cores at the
same time. Four fifths of the merged rows update rows by key and one fifth inserts rows. *Source
alone*: `UPDATE SET *` and `INSERT *`, which needs no row of the table. *Both sides*:
`SET l_quantity = t.l_quantity + s.l_quantity`, which does. The sums of all tables are checked to be
equal. Hudi is measured with upserts.
"""


def page(results: Results) -> str:
    """Return the page of one complete run."""
    where = ", ".join(f"{name}: {value}" for name, value in results.machine.items())
    apart = ", ".join(f"{name} {when}" for name, when in sorted(results.taken.items()))
    alone = f" Measured separately: {apart}." if apart else ""
    taken = f"Measured {results.taken_at}; {where}.{alone}\n"
    return "\n".join([_INTRO, taken, _GOALS, _goals(goals(results)), tables(results)])


def plots(results: Results) -> dict[str, str]:
    """Return the charts that the page shows, by the names of their files."""
    return lake_plots(results.lakes, results.lake_runs) if results.lakes else {}


def tables(results: Results) -> str:
    """Return the tables of the results."""
    sections: tuple[tuple[list[Any], str, Callable[[Results], str]], ...] = (
        (results.cycle, _CYCLE, _cycle),
        (results.requests, _REQUESTS, _requests),
        (results.peers, _PEERS, _peers),
        (results.handover, _HANDOVER, _handover),
        (results.service, _SERVICE, _service),
        (results.scale, _SCALE, _scale),
        (results.writers, _WRITERS, lambda found: _writers(found.writers)),
        (results.writers_s3, _WRITERS_S3, lambda found: _writers(found.writers_s3)),
        (results.table, _TABLE, _tables),
        (results.growth, _GROWTH, _growth),
        (results.rewriting, _REWRITING, _rewriting),
        (results.ingesting, _INGESTING, _ingesting),
        (results.keeping, _KEEPING, _keeping),
        (results.streaming, _STREAMING, _streaming),
        (results.streamer, _STREAMER, _streamer),
        (results.merging, "", _merging),
        (
            results.lakes,
            "",
            lambda found: lake_sections(found.lakes, found.lake_runs, lambda it: _table(*it)),
        ),
    )
    parts: list[str] = []
    for measured, text, table in sections:
        if measured:
            parts += [text, table(results)] if text else [table(results)]
    if results.missing:
        lines = [f"- {name}: {_first_line(why)}" for name, why in results.missing.items()]
        parts += ["## Not measured\n", "\n".join(lines) + "\n"]
    return "\n".join(parts)


def _goals(every: Sequence[Goal]) -> str:
    labels = {True: "met", False: "**missed**", None: ""}
    rows = [(one.what, one.aim, one.found, labels[one.met]) for one in every]
    table = _table(("measure", "goal", "found", ""), rows)
    reasons = dict.fromkeys(WHY[one.what] for one in every if one.met is False and one.what in WHY)
    if not reasons:
        return table
    return "\n".join([table, "### Where a goal is missed\n", *reasons])


def _writers(measured: list[WritersResult]) -> str:
    rows = [
        (
            one.kind,
            str(one.writers),
            one.system,
            f"{one.commits_per_s:.1f}",
            f"{one.failed} of {one.attempted}",
            str(one.lost),
            str(one.twice),
            f"{one.p50_ms:.0f}",
            f"{one.p99_ms:.0f}",
            f"{one.cpu_ms:.0f}",
        )
        for one in measured
    ]
    head = ("batches", "writers", "system", "commits/s", "failed", "lost", "duplicate keys")
    return _table((*head, "p50 ms", "p99 ms", "CPU ms"), rows)


def _tables(results: Results) -> str:
    rows = [
        (one.what, f"{one.best_s:.2f}", f"{one.median_s:.2f}", f"{one.cpu_s:.1f}")
        for one in results.table
    ]
    return _table(("what", "best s", "median s", "CPU s"), rows)


def _streaming(results: Results) -> str:
    rows = [
        (
            f"{one.batch_rows:,}",
            one.sink,
            f"{one.trigger_ms:.0f}",
            f"{one.sink_ms:.0f}",
            f"{one.times_plain:.2f}",
        )
        for one in results.streaming
    ]
    return _table(("rows", "sink", "trigger ms", "sink ms", "times Parquet"), rows)


def _streamer(results: Results) -> str:
    rows = [
        (
            one.source,
            one.operation,
            f"{one.rows_s:,.0f}",
            f"{one.latency_ms:.0f}",
            f"{one.slowest_ms:.0f}",
        )
        for one in results.streamer
    ]
    return _table(("source", "operation", "rows/s", "latency ms", "slowest ms"), rows)


def _merging(results: Results) -> str:
    found = {(one.system, one.statement, one.share): one for one in results.merging}
    columns = list(dict.fromkeys((one.statement, one.share) for one in results.merging))
    rows = [
        [system, *(_merged(found.get((system, *column))) for column in columns)]
        for system in dict.fromkeys(one.system for one in results.merging)
    ]
    head = ["system", *(f"{statement}, {share}" for statement, share in columns)]
    others = sum(one.others for one in results.merging) / len(results.merging)
    text = _MERGING.format(rows=results.merging[0].rows, others=others)
    return f"{text}\n{_table(head, rows)}"


def _merged(one: Merged | None) -> str:
    return "" if one is None else f"{one.best_s:.2f} / {one.cpu_s:.1f}"


def _growth(results: Results) -> str:
    rows = [
        (
            f"{one.commits:,}",
            f"{one.open_ms:.1f}",
            f"{one.read_ms:.1f}",
            f"{one.commit_ms:.1f}",
            str(one.active_files),
        )
        for one in results.growth
    ]
    return _table(("commits", "open ms", "read ms", "commit ms", "files on the timeline"), rows)


def _rewriting(results: Results) -> str:
    rows = [
        (
            one.what,
            f"{one.size_mb:.0f}",
            f"{one.size_mb / one.service_s:.0f}",
            f"{one.service_s:.2f}",
            f"{one.plain_s:.2f}",
            f"**{one.ratio:.2f}**" if one.goal else f"{one.ratio:.2f}",
        )
        for one in results.rewriting
    ]
    return _table(("service", "MB", "MB/s", "s", "pyarrow s", "times as fast"), rows)


def _keeping(results: Results) -> str:
    rows = [
        (f"{one.commits:,}", f"{one.clean_ms:.0f}", f"{one.archive_ms:.0f}")
        for one in results.keeping
    ]
    return _table(("commits", "clean ms", "archive ms"), rows)


def _ingesting(results: Results) -> str:
    alone = results.ingesting[0].p99_ms
    rows = [
        (one.services, f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}", f"{one.p99_ms / alone:.2f}")
        for one in results.ingesting
    ]
    return _table(("services", "p50 ms", "p99 ms", "p99 ratio"), rows)


def _cycle(results: Results) -> str:
    rows = [
        (
            one.store,
            _ms(one.lock.p50_us),
            _ms(one.raw.p50_us),
            f"**{one.ratio:.2f}**",
            _ms(one.lock.p99_us),
            _ms(one.raw.p99_us),
        )
        for one in results.cycle
    ]
    head = ("store", "lock p50 ms", "raw p50 ms", "ratio", "lock p99 ms", "raw p99 ms")
    note = (
        "In memory there is no store latency: the difference is the lock's own computation, and the"
        " ratio is meaningless. The 99th percentile is where this client backed off for others"
        " after taking the lock repeatedly (P32).\n"
    )
    return f"{_table(head, rows)}\n{note}"


def _requests(results: Results) -> str:
    rows = [(one.case, str(len(one.sent)), ", ".join(one.sent)) for one in results.requests]
    return _table(("case", "requests", "in order"), rows)


def _peers(results: Results) -> str:
    rows = [
        (
            one.system,
            *_both(one.alone),
            f"{one.contended.grants_per_s:.0f}",
            f"{one.contended.handovers_per_s:.0f}",
            *_both(one.contended.handover),
            f"{one.contended.jain:.2f}",
        )
        for one in results.peers
    ]
    head = ("system", "uncontended p50 ms", "p99 ms", "grants/s", "hand-overs/s")
    return _table((*head, "hand-over p50 ms", "p99 ms", "fairness"), rows)


def _handover(results: Results) -> str:
    rows = [
        (
            one.system,
            str(one.contenders),
            f"{one.grants_per_s:.0f}",
            *_both(one.handover),
            f"{one.jain:.2f}",
            f"{one.most} / {one.fewest}",
            str(one.overlaps),
        )
        for one in results.handover
    ]
    head = ("system", "contenders", "grants/s", "hand-over p50 ms", "p99 ms")
    return _table((*head, "fairness", "most / fewest grants", "overlaps"), rows)


def _service(results: Results) -> str:
    rows = [
        (one.system, str(one.clients), f"{one.grants_per_s:.0f}", *_both(one.latency))
        for one in results.service
    ]
    return _table(("system", "clients", "grants/s", "p50 ms", "p99 ms"), rows)


def _scale(results: Results) -> str:
    rows = [
        (
            f"{one.held:,}",
            f"{one.streams:,}",
            f"{one.took_s:.1f}",
            f"{one.memory_before_mb:.0f}",
            f"{one.memory_mb:.0f}",
            f"{one.writes_per_s:.1f}",
            f"{one.looks_per_s:.1f}",
            f"{100 * one.processor_share:.0f}",
        )
        for one in results.scale
    ]
    head = ("locks", "streams", "acquired in s", "memory MB before", "with them")
    return _table((*head, "writes/s", "reads/s", "% of a core"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _both(latency: Latency) -> tuple[str, str]:
    return _ms(latency.p50_us), _ms(latency.p99_us)


def _ms(duration_us: float) -> str:
    return f"{duration_us / 1_000:.3g}"


def _first_line(text: str) -> str:
    return text.splitlines()[0]
