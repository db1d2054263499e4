"""The lock service with many clients, compared with etcd's lock API and a Redis lock."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import urllib3

from benchmarks.figures import Latency
from testkit import servers
from testkit.lockserver import ServiceProcess
from tidelock.lock.server import grpc_messages
from tidelock.lock.server.grpc import LOCKS, STREAM_LOCKS

CLIENTS = (1, 64, 1_000)
DURATION_S = 5.0
HELD = 10_000
STREAMS = 5_000
IDLE_S = 10.0
_TTL_S = 30

Cycle = Callable[[str], Awaitable[None]]
"""Acquires and releases the lock with a name."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """One system with a number of clients, each with its own lock."""

    system: str
    clients: int
    grants_per_s: float
    latency: Latency


@dataclass(frozen=True, slots=True)
class Scale:
    """The resources that many locks and streams cost an idle lock service."""

    held: int
    streams: int
    took_s: float
    memory_before_mb: float
    memory_mb: float
    writes_per_s: float
    looks_per_s: float
    processor_share: float


@asynccontextmanager
async def _ours(address: str) -> AsyncIterator[Cycle]:
    async with grpc.aio.insecure_channel(address) as channel:
        lock, unlock = _unary(channel, "Lock"), _unary(channel, "Unlock")
        ask, give = (
            grpc_messages.method(LOCKS, "Lock").request,
            grpc_messages.method(LOCKS, "Unlock").request,
        )

        async def cycle(name: str) -> None:
            held = await lock(ask(resource_id=name, immediate=True))
            await unlock(give(resource_id=name, lock_id=held.lock_id))

        yield cycle


def _unary(channel: Any, name: str) -> Any:
    method = grpc_messages.method(LOCKS, name)
    return channel.unary_unary(
        method.path, method.request.SerializeToString, method.response.FromString
    )


@asynccontextmanager
async def _etcd(address: str) -> AsyncIterator[Cycle]:
    """etcd's own lock API over gRPC; its few messages are encoded here."""
    async with grpc.aio.insecure_channel(address) as channel:
        grant = channel.unary_unary("/etcdserverpb.Lease/LeaseGrant", bytes, bytes)
        lock = channel.unary_unary("/v3lockpb.Lock/Lock", bytes, bytes)
        unlock = channel.unary_unary("/v3lockpb.Lock/Unlock", bytes, bytes)
        leases: dict[str, bytes] = {}

        async def cycle(name: str) -> None:
            if name not in leases:
                reply = _fields(await grant(b"\x08" + _varint(_TTL_S * 100)))
                leases[name] = _varint(int(reply[2]))
            options = _text(1, name.encode()) + b"\x10" + leases[name]
            reply = _fields(await lock(options))
            await unlock(_text(1, reply[2]))

        yield cycle


@asynccontextmanager
async def _redis(address: str) -> AsyncIterator[Cycle]:
    import redis.asyncio as redis

    host, _, port = address.rpartition(":")
    pool = redis.BlockingConnectionPool(host=host, port=int(port), max_connections=64, timeout=60)
    client = redis.Redis(connection_pool=pool)
    release = client.register_script(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
    )

    async def cycle(name: str) -> None:
        assert await client.set(name, name, nx=True, px=_TTL_S * 1000)
        await release(keys=[name], args=[name])

    try:
        yield cycle
    finally:
        await client.aclose()
        await pool.disconnect()


@contextmanager
def service() -> Iterator[ServiceProcess]:
    """Run a lock service on a temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-bench-") as folder,
        ServiceProcess(str(Path(folder) / "store")) as running,
    ):
        yield running


def throughput() -> Iterator[Throughput]:
    """Measure every system with few and with many clients."""
    with service() as ours, servers.etcd() as etcd, servers.redis() as redis:
        systems = {
            "tidelock lock service (local store, gRPC)": (_ours, ours.grpc_address),
            "etcd lock API (gRPC)": (_etcd, f"{etcd.host}:{etcd.port}"),
            "Redis SET NX (in memory)": (_redis, f"{redis.host}:{redis.port}"),
        }
        for clients in CLIENTS:
            for name, (opened, address) in systems.items():
                yield asyncio.run(_measured(name, opened, address, clients))


async def _measured(name: str, opened: Any, address: str, clients: int) -> Throughput:
    samples: list[int] = []
    async with opened(address) as cycle:
        await asyncio.gather(*(cycle(f"bench-{number}") for number in range(clients)))
        end = time.perf_counter() + DURATION_S

        async def work(number: int) -> None:
            while time.perf_counter() < end:
                began = time.perf_counter_ns()
                await cycle(f"bench-{number}")
                samples.append(time.perf_counter_ns() - began)

        began_s = time.perf_counter()
        await asyncio.gather(*(work(number) for number in range(clients)))
        took_s = time.perf_counter() - began_s
    return Throughput(name, clients, len(samples) / took_s, Latency.of(samples))


def scale() -> Scale:
    """Hold many locks and streams, and measure the resources of the idle service."""
    with service() as running:
        return asyncio.run(_scaled(running))


async def _scaled(running: ServiceProcess) -> Scale:
    assert running.popen is not None
    pid = running.popen.pid
    before = _memory_mb(pid)
    began = time.perf_counter()
    method = grpc_messages.method(STREAM_LOCKS, "Lock")
    async with grpc.aio.insecure_channel(running.grpc_address) as channel:
        lock, ask = _unary(channel, "Lock"), grpc_messages.method(LOCKS, "Lock").request
        for start in range(0, HELD, 1_000):
            wishes = (ask(resource_id=f"held-{n}") for n in range(start, start + 1_000))
            await asyncio.gather(*(lock(options) for options in wishes))
        stream = channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        calls = [stream(ask(resource_id=f"stream-{n}")) for n in range(STREAMS)]
        await asyncio.gather(*(_acquired(call) for call in calls))
        took_s = time.perf_counter() - began
        first, spent = _counters(running.url), _processor_s(pid)
        await asyncio.sleep(IDLE_S)
        last, spent = _counters(running.url), _processor_s(pid) - spent
        memory = _memory_mb(pid)
        for call in calls:
            call.cancel()
    return Scale(
        held=HELD,
        streams=STREAMS,
        took_s=took_s,
        memory_before_mb=before,
        memory_mb=memory,
        writes_per_s=(last["batches"] - first["batches"]) / IDLE_S,
        looks_per_s=(last["beats"] - first["beats"]) / IDLE_S,
        processor_share=spent / IDLE_S,
    )


async def _acquired(call: Any) -> None:
    while not (await call.read()).HasField("lock_acquired"):
        pass


def _counters(url: str) -> dict[str, float]:
    with urllib3.PoolManager() as pool:
        text = pool.request("GET", f"{url}/metrics").data.decode()
    names = {"batches": "journal_batches_total", "beats": "beats_total"}
    # A counter is missing until it is incremented.
    return {
        short: float(found[1])
        if (found := re.search(rf"lockservice_{name} ([\d.]+)", text))
        else 0.0
        for short, name in names.items()
    }


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _text(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _fields(message: bytes) -> dict[int, Any]:
    """Return the fields of a flat protobuf message; nested messages stay bytes."""
    found: dict[int, Any] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found[tag >> 3] = number()
        else:
            size = number()
            found[tag >> 3] = message[at : at + size]
            at += size
    return found
