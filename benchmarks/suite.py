"""What is measured, in which order, and for how long."""

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
from benchmarks.contention import Contention, Fight
from benchmarks.cycle import CycleResult
from benchmarks.figures import Latency, interleaved
from benchmarks.growth import Growth
from benchmarks.lakes import contest as lakes
from benchmarks.lakes.contest import Asked
from benchmarks.lakes.figure import Contest, LakeFigure, LakeRun
from benchmarks.lockservice import Scale, Throughput
from benchmarks.merging import Merged, Merges
from benchmarks.peers import OTHERS, OURS, Client, Peer
from benchmarks.places import ALL, BUCKET
from benchmarks.requests import Requests
from benchmarks.services import Ingesting, Keeping, Rewriting
from benchmarks.streamer import Streamed
from benchmarks.streaming import Streaming
from benchmarks.table import figures
from benchmarks.table.figures import TableFigure
from benchmarks.writers import WritersResult
from tidelock.testing.servers import ServerUnavailable, seaweedfs

CONTENDERS = (2, 8, 32, 128)
PEER_CONTENDERS = 8
PEER_ROUNDS = 2
FIGHT_S = 5.0
CROWD_FIGHT_S = 6.0
"""Longer, so that each of many has time to come to its turn."""
PEER_CYCLES_S = 15.0

_Running = TypeVar("_Running")


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One lock system: alone, and fought over."""

    system: str
    alone: Latency
    contended: Contention


@dataclass(slots=True)
class Results:
    """Everything that was found. `missing` says why something was not measured."""

    taken_at: str = ""
    taken: dict[str, str] = field(default_factory=dict)
    """When a part was taken, if not with the others."""
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
    """Acquire+release against the raw conditional put, on every store."""
    for name, opened in ALL.items():
        with _if_there(name, opened, results) as place:
            if place is not None:
                results.cycle.append(cycle.measure(place))


def measure_requests(results: Results) -> None:
    """Requests per cycle."""
    counted, missing = requests.measure()
    results.requests += counted
    results.missing.update(missing)


def measure_peers(results: Results) -> None:
    """Ours and the others, all running at once, in turns."""
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name, opened in {**OURS, **OTHERS}.items():
            peer = stack.enter_context(_if_there(name, opened, results))
            if peer is not None:
                peers[name] = peer
        alone = _alone(peers)
        fights: dict[str, list[Fight]] = {name: [] for name in peers}
        for _ in range(PEER_ROUNDS):
            for name, peer in peers.items():
                fights[name].append(contention.fight(peer, PEER_CONTENDERS, duration_s=FIGHT_S))
        for name in peers:
            fought = contention.judge(name, PEER_CONTENDERS, fights[name])
            results.peers.append(PeerResult(name, alone[name], fought))


def measure_handover(results: Results) -> None:
    """Ours with few and with many contenders."""
    for name, opened in OURS.items():
        with _if_there(name, opened, results) as peer:
            if peer is not None:
                for count in CONTENDERS:
                    duration_s = CROWD_FIGHT_S if count > PEER_CONTENDERS else FIGHT_S
                    fought = contention.fight(peer, count, duration_s=duration_s)
                    results.handover.append(contention.judge(name, count, [fought]))


def measure_service(results: Results) -> None:
    """The lock service beside etcd and Redis, and what many locks and streams cost it."""
    try:
        results.service += lockservice.throughput()
    except ServerUnavailable as error:
        results.missing["lock service beside others"] = str(error)
    results.scale.append(lockservice.scale())


def measure_writers(results: Results) -> None:
    """Several processes on one table, beside other table formats."""
    for kind, count in writers.CASES:
        found, missing = writers.measure(kind, count)
        results.writers += found
        results.missing.update(missing)


def measure_writers_s3(results: Results) -> None:
    """Several processes on one table on S3, beside delta-rs with conditional puts."""
    with _if_there("writers on S3", seaweedfs, results) as server:
        if server is None:
            return
        server.create_bucket(BUCKET)
        for kind, count in writers.S3_CASES:
            found, missing = writers.measure(kind, count, writers.S3_SYSTEMS, server=server)
            results.writers_s3 += found
            results.missing.update(missing)


def measure_growth(results: Results) -> None:
    """A table with few and with many commits behind it."""
    results.growth += growth.measure()


def measure_table(results: Results) -> None:
    """Five million rows through Spark, beside plain Spark and the limit of one process."""
    results.table += figures.measure()


def measure_services(results: Results) -> None:
    """Table services beside plain rewriting, by the table's age, and for who writes meanwhile."""
    results.rewriting += services.rewriting()
    results.ingesting += services.ingesting()
    results.keeping += services.keeping()


def measure_streaming(results: Results) -> None:
    """Micro-batches into a table, beside Spark's Parquet sink."""
    results.streaming += streaming.measure()


def measure_streamer(results: Results) -> None:
    """The streamer on a backlog, and on single small batches, from files and from Kafka."""
    results.streamer += streamer.measure(results.missing)


def measure_merging(
    results: Results,
    asked: merging.Asked | None = None,
    after_each: Callable[[], None] = lambda: None,
) -> None:
    """MERGE INTO of some rows into many, beside other lakes.

    `after_each` is called whenever a system has come to its end.
    """
    missing = dict(results.missing)

    def take(found: Merges) -> None:
        results.merging = found.figures
        results.missing = {**missing, **found.missing}
        after_each()

    merging.measure(asked or merging.Asked(), take)


def measure_lakes(
    results: Results, asked: Asked | None = None, after_each: Callable[[], None] = lambda: None
) -> None:
    """The same rows loaded, changed and read by every system one might pick instead.

    `after_each` is called whenever a system has come to its end.
    """
    missing = dict(results.missing)

    def take(found: Contest) -> None:
        results.lakes = found.figures
        results.lake_runs = [replace(found.run, taken_at=results.taken_at)]
        results.missing = {**missing, **found.missing}
        after_each()

    try:
        lakes.measure(asked or Asked(), take)
    except ServerUnavailable as error:
        results.missing["beside other lakes"] = str(error)


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
    """Return empty results that know when and where they were taken."""
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
    """Yield what `opened` runs, or None, noting the reason."""
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
