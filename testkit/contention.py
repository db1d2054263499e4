"""Contention for one lock: threads of one process, or processes of one machine.

`python -m testkit.contention --store URI --processes 16 --sections 20` prints one JSON
object. Settings for the store are read as JSON from the standard input with `--settings`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from testkit.history import (
    Section,
    fairness,
    hand_overs_ms,
    read_sections,
    violations,
    write_section,
)
from tidelock.lock.client import Lock
from tidelock.lock.lease import Lease
from tidelock.storage.contract import ObjectStore
from tidelock.storage.uri import open_store

LEASE = Lease(validity_ms=20_000, renew_ms=2_000)
_END_S = 240


@dataclass(frozen=True, slots=True)
class ContentionResult:
    """The result of a run."""

    sections: int
    violations: list[str]
    failures: list[str]
    elapsed_s: float
    hand_over_ms_median: float
    hand_over_ms_p99: float
    fairness: float

    @staticmethod
    def of(sections: Sequence[Section], failures: list[str], elapsed_s: float) -> ContentionResult:
        """Check a history and compute its statistics."""
        waits = hand_overs_ms(sections) or [0.0]
        return ContentionResult(
            sections=len(sections),
            violations=list(violations(sections))[:20],
            failures=failures,
            elapsed_s=round(elapsed_s, 2),
            hand_over_ms_median=round(waits[len(waits) // 2], 2),
            hand_over_ms_p99=round(waits[min(len(waits) - 1, len(waits) * 99 // 100)], 2),
            fairness=round(fairness(sections), 3),
        )


def contend_threads(
    open_lock: Callable[[], Lock], *, threads: int, rounds: int, inside: Callable[[], None]
) -> ContentionResult:
    """Let `threads` threads enter `rounds` times each; `inside` runs under the lock."""
    sections: list[Section] = []
    failures: list[str] = []
    start = threading.Barrier(threads + 1)

    def contend(number: int) -> None:
        lock = open_lock()
        try:
            start.wait()
            for _ in range(rounds):
                token = lock.acquire(_END_S)
                began_ns = time.monotonic_ns()
                inside()
                # A plain list: the lock under test is the only mutex.
                sections.append(Section(str(number), token, began_ns, time.monotonic_ns()))
                lock.release()
        except Exception:
            failures.append(traceback.format_exc())
        finally:
            lock.close()

    workers = [threading.Thread(target=contend, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start.wait()
    began_s = time.monotonic()
    for worker in workers:
        worker.join(_END_S)
    elapsed_s = time.monotonic() - began_s
    failures += ["a thread did not finish" for worker in workers if worker.is_alive()]
    return ContentionResult.of(sections, failures, elapsed_s)


def contend_processes(
    uri: str, settings: Mapping[str, object], *, processes: int, sections: int, inside_ms: float
) -> ContentionResult:
    """Let `processes` processes enter `sections` times each. This process must have one thread."""
    with tempfile.TemporaryDirectory(prefix="tidelock-contention-") as folder:
        home = Path(folder)
        began_s = time.monotonic()
        children = []
        for number in range(processes):
            pid = os.fork()
            if pid == 0:
                _contender_process(open_store(uri, settings), home, number, sections, inside_ms)
            children.append(pid)
        failures = [
            f"contender {number} exited with {status}"
            for number, pid in enumerate(children)
            if (status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) != 0
        ]
        failures += [path.read_text() for path in home.glob("*.error")]
        return ContentionResult.of(read_sections(home), failures, time.monotonic() - began_s)


def _contender_process(
    store: ObjectStore, home: Path, number: int, sections: int, inside_ms: float
) -> NoReturn:
    """Contend; never returns."""
    signal.alarm(_END_S)
    status = 1
    try:
        lock = Lock(store, LEASE)
        shared = home / "inside"
        for _ in range(sections):
            token = lock.acquire(_END_S)
            began_ns = time.monotonic_ns()
            # Fails if another process is inside, independent of clocks.
            os.close(os.open(shared, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            time.sleep(inside_ms / 1000)
            shared.unlink()
            section = Section(str(number), token, began_ns, time.monotonic_ns())
            lock.release()
            write_section(home / f"{number}.jsonl", section)
        lock.close()
        status = 0
    except BaseException:
        (home / f"{number}.error").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run processes that contend for a lock, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m testkit.contention", description=__doc__)
    parser.add_argument("--store", required=True, help="path or URI of the resource to lock")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--sections", type=int, default=20, help="critical sections per process")
    parser.add_argument("--inside-ms", type=float, default=2.0, help="length of a section")
    parser.add_argument(
        "--settings",
        action="store_true",
        help="read settings of the store, as JSON, from standard input",
    )
    options = parser.parse_args(arguments)
    settings: dict[str, Any] = json.load(sys.stdin) if options.settings else {}
    outcome = contend_processes(
        options.store,
        settings,
        processes=options.processes,
        sections=options.sections,
        inside_ms=options.inside_ms,
    )
    fields = {name: getattr(outcome, name) for name in ContentionResult.__slots__}
    sys.stdout.write(json.dumps(fields, indent=1) + "\n")
    return 1 if outcome.violations or outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
