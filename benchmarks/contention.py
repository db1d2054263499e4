"""Many contenders for one lock: the time of a hand-over, and fairness.

Contenders are threads in up to eight processes. Each holds the lock for about a millisecond,
repeatedly, for the duration of the run. Sections are timed by the monotonic clock of the machine,
so gaps and overlaps between holders are measured across processes.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from benchmarks.figures import Latency, jain
from benchmarks.peers import Client, Peer

PROCESSES_MOST = 8
SECTION_S = 0.001
_DEADLINE_S = 60.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True)
class Section:
    """One critical section of one contender."""

    begin_ns: int
    end_ns: int
    who: int


@dataclass(frozen=True, slots=True)
class Contention:
    """The result of one or several runs with the same contenders."""

    system: str
    contenders: int
    grants_per_s: float
    handovers_per_s: float
    handover: Latency
    jain: float
    fewest: int
    most: int
    overlaps: int


ContentionRun = Sequence[Section]
"""All sections of one run, by their start."""


def run_contention(peer: Peer, contenders: int, *, duration_s: float) -> ContentionRun:
    """Let contenders compete for the lock for `duration_s`."""
    processes = min(contenders, PROCESSES_MOST)
    threads = contenders // processes
    ready = _context.Barrier(processes)
    results: Queue[list[Section]] = _context.Queue()
    running = [
        _context.Process(
            target=_process,
            args=(peer, range(number * threads, (number + 1) * threads)),
            kwargs={"duration_s": duration_s, "ready": ready, "results": results},
            daemon=True,
        )
        for number in range(processes)
    ]
    for process in running:
        process.start()
    # The last waiter may get the lock long after the end of the run.
    deadline_s = _DEADLINE_S + duration_s
    sections = [section for _ in running for section in results.get(timeout=deadline_s)]
    for process in running:
        process.join()
    return sorted(sections, key=lambda one: one.begin_ns)


def summarize(system: str, contenders: int, runs: Sequence[ContentionRun]) -> Contention:
    """Return the combined figures of some runs."""
    grants = Counter(section.who for one in runs for section in one)
    counts = [grants[who] for who in range(contenders)]
    steps = [step for one in runs for step in pairwise(one)]
    gaps_ns = [after.begin_ns - before.end_ns for before, after in steps if after.who != before.who]
    span_s = sum(one[-1].end_ns - one[0].begin_ns for one in runs) / 1e9
    return Contention(
        system=system,
        contenders=contenders,
        grants_per_s=sum(counts) / span_s,
        handovers_per_s=len(gaps_ns) / span_s,
        handover=Latency.of(gaps_ns or [0]),
        jain=jain(counts),
        fewest=min(counts),
        most=max(counts),
        overlaps=sum(gap < 0 for gap in gaps_ns),
    )


def _process(
    peer: Peer,
    contenders: range,
    *,
    duration_s: float,
    ready: Barrier,
    results: Queue[list[Section]],
) -> None:
    """Run some of the contenders, and send their sections at the end."""
    clients = [peer.client() for _ in contenders]
    sections: list[Section] = []
    ready.wait(_DEADLINE_S)
    end = time.monotonic() + duration_s
    threads = [
        threading.Thread(target=_contend, args=(who, client, end, sections))
        for who, client in zip(contenders, clients, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()
    results.put(sections)


def _contend(who: int, client: Client, end: float, sections: list[Section]) -> None:
    while time.monotonic() < end:
        client.acquire()
        begin_ns = time.monotonic_ns()
        # After the end of the run, a contender only passes the lock on.
        if begin_ns < end * 1e9:
            time.sleep(SECTION_S)
            sections.append(Section(begin_ns, time.monotonic_ns(), who))
        client.release()
