"""Fault-injecting proxies for tests against real servers: one that knows HTTP, one for any TCP."""

from testkit.proxy.faults import (
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
from testkit.proxy.proxy import FaultProxy, Record
from testkit.proxy.request import Request
from testkit.proxy.tcp_proxy import TcpProxy

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
    "TcpProxy",
    "Truncate",
    "on",
]
