"""Where a soak writes: a folder, any store, or a SeaweedFS of its own behind a faulty network."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidelock.base.errors import InvalidInput
from tidelock.base.ids import SeededIds
from tidelock.ops.soak.keeping import is_kept
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
    says: str
    settings: Mapping[str, str] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    calm: Callable[[], None] = lambda: None
    """Do no more harm to requests: what is judged is the table, not the judges' patience."""


@contextmanager
def opened(
    store: str, folder: Path, settings: Mapping[str, str], *, faulty: bool, seed: int
) -> Iterator[Place]:
    """Yield where the table is to be: below `folder` unless `store` says otherwise.

    Raises: `InvalidInput` if `folder` has a soak whose server, and so its table, are gone.
    """
    if store == OWN_SERVER:
        if is_kept(folder):
            raise InvalidInput(
                f"the soak in {folder} cannot go on: its table ended with its server",
                hint="choose another folder",
            )
        with _own_server(settings, faulty=faulty, seed=seed) as place:
            yield place
    elif store:
        uri = f"{store.rstrip('/')}/orders"
        yield Place(uri, uri, settings)
    else:
        yield Place(str(folder / "orders"), "local disk", settings)


@contextmanager
def _own_server(given: Mapping[str, str], *, faulty: bool, seed: int) -> Iterator[Place]:
    with seaweedfs() as server:
        server.create_bucket(_BUCKET)
        weather = _Weather(SeededIds(seed), faulty=faulty)
        with FaultProxy(server.endpoint, decide=weather, remembers=1_000) as proxy:
            settings = {
                **given,
                "tidelock.s3.endpoint": proxy.endpoint,
                "tidelock.s3.region": server.region,
                "hoodie.aws.access.key": server.access_key,
                "hoodie.aws.secret.key": server.secret_key,
            }
            uri = f"s3://{_BUCKET}/orders"
            network = " behind a network with faults" if faulty else ""
            says = f"{server.name}{network}"
            yield Place(uri, says, settings, weather.requests, weather.faults, weather.calm)


@dataclass(slots=True)
class _Weather:
    """Decides what happens to a request, from the threads of the proxy."""

    ids: SeededIds
    faulty: bool
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def calm(self) -> None:
        """Let every request through from now on."""
        self.faulty = False

    def __call__(self, request: Request) -> Fault | None:
        with self._mutex:
            self.requests[request.method] += 1
            if not self.faulty or self.ids.jitter() >= _FAULTY:
                return None
            fault = _FAULTS[int(self.ids.jitter() * len(_FAULTS))]
            self.faults[type(fault).__name__] += 1
            return fault
