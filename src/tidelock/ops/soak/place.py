"""Where a soak writes: a folder, any store, or a SeaweedFS of its own behind a faulty network."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelock.base.ids import SeededIds
from tidelock.testing.proxy import (
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
from tidelock.testing.servers import seaweedfs

OWN_SERVER: Final = "seaweedfs"
_BUCKET: Final = "soak"
_FAULTY: Final = 0.01
"""The share of requests that something happens to."""

_FAULTS: Final[tuple[Fault, ...]] = (
    RequestLost(),
    ReplyLost(),
    ReplyReset(),
    Status(503),
    Status(500, forward_first=True),
    Delay(300),
    Truncate(10),
)


@dataclass(slots=True)
class Place:
    """The table's URI and the store's settings, and what has happened to requests so far."""

    uri: str
    settings: Mapping[str, str] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


@contextmanager
def opened(
    store: str, folder: Path, settings: Mapping[str, str], *, faulty: bool, seed: int
) -> Iterator[Place]:
    """Yield where the table is to be: below `folder` unless `store` says otherwise."""
    if store == OWN_SERVER:
        with _own_server(faulty=faulty, seed=seed) as place:
            yield place
    elif store:
        yield Place(f"{store.rstrip('/')}/orders", settings)
    else:
        yield Place(str(folder / "orders"), settings)


@contextmanager
def _own_server(*, faulty: bool, seed: int) -> Iterator[Place]:
    with seaweedfs() as server:
        server.create_bucket(_BUCKET)
        weather = _Weather(SeededIds(seed), faulty=faulty)
        with FaultProxy(server.endpoint, decide=weather, remembers=1_000) as proxy:
            settings = {
                "tidelock.s3.endpoint": proxy.endpoint,
                "tidelock.s3.region": server.region,
                "hoodie.aws.access.key": server.access_key,
                "hoodie.aws.secret.key": server.secret_key,
            }
            yield Place(f"s3://{_BUCKET}/orders", settings, weather.requests, weather.faults)


@dataclass(slots=True)
class _Weather:
    """Decides what happens to a request, from the threads of the proxy."""

    ids: SeededIds
    faulty: bool
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request) -> Fault | None:
        with self._mutex:
            self.requests[request.method] += 1
            if not self.faulty or self.ids.jitter() >= _FAULTY:
                return None
            fault = _FAULTS[int(self.ids.jitter() * len(_FAULTS))]
            self.faults[type(fault).__name__] += 1
            return fault
