"""`python -m testkit.soak`: `tidelock soak` with SeaweedFS behind a faulty network as a store."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from testkit.proxy import (
    Delay,
    Fault,
    FaultProxy,
    ReplyLost,
    ReplyReset,
    Request,
    RequestLost,
    Status,
    Truncate,
)
from testkit.servers import seaweedfs
from tidelock.cli.main import main
from tidelock.core.system import SeededIds
from tidelock.workload.soak import STORE_STARTERS, SoakStore

_BUCKET: Final = "soak"
_FAULTY: Final = 0.01
"""The share of requests with a fault."""

_FAULTS: Final[tuple[Fault, ...]] = (
    RequestLost(),
    ReplyLost(),
    ReplyReset(),
    Status(503),
    Status(500, forward_first=True),
    Delay(300),
    Truncate(10),
)


@contextmanager
def faulty_seaweedfs(
    settings: Mapping[str, str], *, faulty: bool, seed: int
) -> Iterator[SoakStore]:
    """Start SeaweedFS behind a proxy that injects faults."""
    with seaweedfs() as server:
        server.create_bucket(_BUCKET)
        plan = _FaultPlan(SeededIds(seed), faulty=faulty)
        with FaultProxy(server.endpoint, decide=plan, records_max=1_000) as proxy:
            server_settings = {
                **settings,
                "tidelock.s3.endpoint": proxy.endpoint,
                "tidelock.s3.region": server.region,
                "hoodie.aws.access.key": server.access_key,
                "hoodie.aws.secret.key": server.secret_key,
            }
            uri = f"s3://{_BUCKET}/orders"
            network = " behind a faulty network" if faulty else ""
            description = f"{server.name}{network}"
            yield SoakStore(
                uri, description, server_settings, plan.requests, plan.faults, plan.stop_faults
            )


@dataclass(slots=True)
class _FaultPlan:
    """Decides the fault of each request; called from the threads of the proxy."""

    ids: SeededIds
    faulty: bool
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def stop_faults(self) -> None:
        """Let every request pass from now on."""
        self.faulty = False

    def __call__(self, request: Request) -> Fault | None:
        with self._mutex:
            self.requests[request.method] += 1
            if not self.faulty or self.ids.jitter() >= _FAULTY:
                return None
            fault = _FAULTS[int(self.ids.jitter() * len(_FAULTS))]
            self.faults[type(fault).__name__] += 1
            return fault


STORE_STARTERS["seaweedfs"] = faulty_seaweedfs

if __name__ == "__main__":
    sys.exit(main(["soak", *sys.argv[1:]]))
