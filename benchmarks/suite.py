"""All measurements, their order and their duration."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from benchmarks import (
    contention,
    cycle,
    growth,
    lockservice,
    merging,
    requests,
    services,
    streamer,
    streaming,
    writers,
)
from benchmarks.contention import Contention, ContentionRun
from benchmarks.cycle import CycleResult
from benchmarks.figures import Latency, interleaved
from benchmarks.growth import Growth
from benchmarks.lakes import comparison as lakes
from benchmarks.lakes.comparison import ComparisonOptions
from benchmarks.lakes.figure import Comparison, LakeFigure, LakeRun
from benchmarks.lockservice import Scale, Throughput
from benchmarks.merging import Merged, Merges
from benchmarks.peers import OTHERS, OURS, Client, Peer
from benchmarks.requests import Requests
from benchmarks.services import Ingesting, Keeping, Rewriting
from benchmarks.stores import ALL, BUCKET
from benchmarks.streamer import Streamed
from benchmarks.streaming import Streaming
from benchmarks.table import figures
from benchmarks.table.figures import TableFigure
from benchmarks.writers import WritersResult
from testkit.servers import ServerUnavailable, seaweedfs

CONTENDERS = (2, 8, 32, 128)
PEER_CONTENDERS = 8
PEER_ROUNDS = 2
CONTENTION_S = 5.0
CROWD_CONTENTION_S = 6.0
"""Longer, so that each of many contenders gets the lock."""
PEER_CYCLES_S = 15.0

_Running = TypeVar("_Running")


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One lock system, uncontended and contended."""

    system: str
    alone: Latency
    contended: Contention


@dataclass(slots=True)
class Results:
    """All results. `missing` has the reasons for missing measures."""

    taken_at: str = ""
    taken: dict[str, str] = field(default_factory=dict)
    """The time of parts that were measured separately."""
    machine: dict[str, str] = field(default_factory=dict)
    cycle: list[CycleResult] = field(default_factory=list)
    requests: list[Requests] = field(default_factory=list)
    peers: list[PeerResult] = field(default_factory=list)
    handover: list[Contention] = field(default_factory=list)
    service: list[Throughput] = field(default_factory=list)
    scale: list[Scale] = field(default_factory=list)
    writers: list[WritersResult] = field(default_factory=list)
    writers_s3: list[WritersResult] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    table: list[TableFigure] = field(default_factory=list)
    rewriting: list[Rewriting] = field(default_factory=list)
    keeping: list[Keeping] = field(default_factory=list)
    ingesting: list[Ingesting] = field(default_factory=list)
    streaming: list[Streaming] = field(default_factory=list)
    lakes: list[LakeFigure] = field(default_factory=list)
    lake_runs: list[LakeRun] = field(default_factory=list)
    streamer: list[Streamed] = field(default_factory=list)
    merging: list[Merged] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def measure_cycle(results: Results) -> None:
    """Measure acquire and release, compared with raw conditional puts, on every store."""
    for name, opened in ALL.items():
        with _if_there(name, opened, results) as location:
            if location is not None:
                results.cycle.append(cycle.measure(location))


def measure_requests(results: Results) -> None:
    """Measure the requests per cycle."""
    counted, missing = requests.measure()
    results.requests += counted
    results.missing.update(missing)


def measure_peers(results: Results) -> None:
    """Measure ours and other lock systems, all running at once, in turn."""
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, opened in {**OURS, **OTHERS}.items():
            peer = stack.enter_context(_if_there(name, opened, results))
            if peer is not None:
                peers[name] = peer
        alone = _alone(peers)
        runs: dict[str, list[ContentionRun]] = {name: [] for name in peers}
        for _ in range(PEER_ROUNDS):
            for name, peer in peers.items():
                runs[name].append(
                    contention.run_contention(peer, PEER_CONTENDERS, duration_s=CONTENTION_S)
                )
        for name in peers:
            contention_result = contention.summarize(name, PEER_CONTENDERS, runs[name])
            results.peers.append(PeerResult(name, alone[name], contention_result))


def measure_handover(results: Results) -> None:
    """Measure our lock with few and with many contenders."""
    for name, opened in OURS.items():
        with _if_there(name, opened, results) as peer:
            if peer is not None:
                for count in CONTENDERS:
                    duration_s = CROWD_CONTENTION_S if count > PEER_CONTENDERS else CONTENTION_S
                    contention_result = contention.run_contention(
                        peer, count, duration_s=duration_s
                    )
                    results.handover.append(contention.summarize(name, count, [contention_result]))


def measure_service(results: Results) -> None:
    """Measure the lock service, etcd and Redis, and the cost of many locks and streams."""
    try:
        results.service += lockservice.throughput()
    except ServerUnavailable as error:
        results.missing["lock service, other systems"] = str(error)
    results.scale.append(lockservice.scale())


def measure_writers(results: Results) -> None:
    """Measure several processes on one table, compared with other table formats."""
    for kind, count in writers.CASES:
        found, missing = writers.measure(kind, count)
        results.writers += found
        results.missing.update(missing)


def measure_writers_s3(results: Results) -> None:
    """Measure several processes on one table on S3, compared with delta-rs."""
    with _if_there("writers on S3", seaweedfs, results) as server:
        if server is None:
            return
        server.create_bucket(BUCKET)
        for kind, count in writers.S3_CASES:
            found, missing = writers.measure(kind, count, writers.S3_SYSTEMS, server=server)
            results.writers_s3 += found
            results.missing.update(missing)


def measure_growth(results: Results) -> None:
    """Measure a table with few and with many commits."""
    results.growth += growth.measure()


def measure_table(results: Results) -> None:
    """Measure five million rows through Spark, compared with plain Spark and polars."""
    results.table += figures.measure()


def measure_services(results: Results) -> None:
    """Measure table services."""
    results.rewriting += services.rewriting()
    results.ingesting += services.ingesting()
    results.keeping += services.keeping()


def measure_streaming(results: Results) -> None:
    """Measure micro-batches into a table, compared with Spark's Parquet sink."""
    results.streaming += streaming.measure()


def measure_streamer(results: Results) -> None:
    """Measure the streamer on a backlog and on small batches, from files and from Kafka."""
    results.streamer += streamer.measure(results.missing)


def measure_merging(
    results: Results,
    options: merging.MergeOptions | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Measure MERGE INTO, compared with other table formats.

    `after_each` is called after each system.
    """
    missing = dict(results.missing)

    def take(found: Merges) -> None:
        results.merging = found.figures
        results.missing = {**missing, **found.missing}
        after_each()

    merging.measure(options or merging.MergeOptions(), take)


def measure_lakes(
    results: Results,
    options: ComparisonOptions | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """Load, change and read the same rows with every table format.

    `after_each` is called after each system.
    """
    missing = dict(results.missing)

    def take(found: Comparison) -> None:
        results.lakes = found.figures
        results.lake_runs = [replace(found.run, taken_at=results.taken_at)]
        results.missing = {**missing, **found.missing}
        after_each()

    try:
        lakes.measure(options or ComparisonOptions(), take)
    except ServerUnavailable as error:
        results.missing["other table formats"] = str(error)


PARTS: Mapping[str, Callable[[Results], None]] = {
    "cycle": measure_cycle,
    "requests": measure_requests,
    "peers": measure_peers,
    "handover": measure_handover,
    "service": measure_service,
    "writers": measure_writers,
    "writers_s3": measure_writers_s3,
    "growth": measure_growth,
    "table": measure_table,
    "services": measure_services,
    "streaming": measure_streaming,
    "streamer": measure_streamer,
    "merging": measure_merging,
    "lakes": measure_lakes,
}


def begin() -> Results:
    """Return empty results with the time and the machine."""
    machine = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "load before": f"{os.getloadavg()[0]:.1f}",
    }
    return Results(taken_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), machine=machine)


def _alone(peers: Mapping[str, Peer]) -> dict[str, Latency]:
    clients = {name: peer.client() for name, peer in peers.items()}
    cycles = {name: _cycle_of(client) for name, client in clients.items()}
    samples = interleaved(cycles, budget_s=PEER_CYCLES_S)
    for client in clients.values():
        client.close()
    return {name: Latency.of(samples[name]) for name in clients}


def _cycle_of(client: Client) -> Callable[[], None]:
    def run() -> None:
        client.acquire()
        client.release()

    return run


@contextmanager
def _if_there(
    name: str, opened: Callable[[], AbstractContextManager[_Running]], results: Results
) -> Iterator[_Running | None]:
    """Yield the result of `opened`, or None with the reason in `results.missing`."""
    with ExitStack() as stack:
        running: _Running | None = None
        try:
            running = stack.enter_context(opened())
        except ServerUnavailable as error:
            results.missing[name] = str(error)
        yield running


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
