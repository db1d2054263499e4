"""Fault-injecting proxies for tests against real servers: one that knows HTTP, one for any TCP."""

from tidelock.testing.proxy.faults import (
    Delay,
    Fault,
    Pass,
    ReplyLost,
    ReplyReset,
    RequestLost,
    RequestReset,
    Stall,
    Status,
    Truncate,
    on,
)
from tidelock.testing.proxy.gate import TcpGate
from tidelock.testing.proxy.proxy import FaultProxy, Record
from tidelock.testing.proxy.request import Request

__all__ = [
    "Delay",
    "Fault",
    "FaultProxy",
    "Pass",
    "Record",
    "ReplyLost",
    "ReplyReset",
    "Request",
    "RequestLost",
    "RequestReset",
    "Stall",
    "Status",
    "TcpGate",
    "Truncate",
    "on",
]
