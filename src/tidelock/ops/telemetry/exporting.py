"""Metrics for Prometheus: an endpoint that is asked, and a gateway that is told."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import urllib3

from tidelock.base.errors import ConfigInvalid
from tidelock.base.exposition import CONTENT_TYPE, exposed
from tidelock.base.metrics import PROCESS
from tidelock.base.runtime import start_thread

logger = logging.getLogger(__name__)

Lines = Callable[[], list[str]]


def process_lines() -> list[str]:
    """Return everything that this process has counted."""
    return exposed(PROCESS.snapshot())


@contextmanager
def served(port: int, *, host: str = "127.0.0.1", lines: Lines = process_lines) -> Iterator[str]:
    """Answer `GET /metrics` for as long as the block lasts; yield the URL.

    Port 0 is any that is free. Raises: `ConfigInvalid` if the port is taken.
    """
    handler = type("MetricsHandler", (_Handler,), {"lines": staticmethod(lines)})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise ConfigInvalid(
            f"metrics cannot be served on {host}:{port}: {error}", hint="choose another port"
        ) from error
    server.daemon_threads = True
    start_thread("tidelock-metrics", lambda: server.serve_forever(poll_interval=0.1))
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "tidelock", ""
    timeout = 30
    lines: Lines

    def do_GET(self) -> None:
        """Answer with the metrics as they are now."""
        known = self.path.partition("?")[0] == "/metrics"
        body = "\n".join([*(self.lines() if known else ["see /metrics"]), ""]).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log as the rest of the package does."""
        logger.debug(format, *args)


@contextmanager
def pushed(
    gateway: str, *, job: str = "tidelock", every_s: float = 15.0, lines: Lines = process_lines
) -> Iterator[None]:
    """Send the metrics to a push gateway every so often, and once more at the end.

    A gateway that does not answer is told to the log, and harms nothing else.
    """
    instance = quote(f"{socket.gethostname()}:{os.getpid()}", safe="")
    url = f"{gateway.rstrip('/')}/metrics/job/{quote(job, safe='')}/instance/{instance}"
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            push(url, lines)

    start_thread("tidelock-push", run)
    try:
        yield
    finally:
        over.set()
        push(url, lines)


def push(url: str, lines: Lines = process_lines) -> bool:
    """Send the metrics once; tell whether the gateway took them."""
    body = "\n".join([*lines(), ""]).encode()
    headers = {"Content-Type": CONTENT_TYPE}
    try:
        with urllib3.PoolManager(timeout=urllib3.Timeout(5.0), retries=False) as http:
            reply = http.request("PUT", url, body=body, headers=headers)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        logger.warning("metrics were not pushed to %s: %s", url, error)
        return False
    if reply.status >= 300:
        logger.warning("metrics were not pushed to %s: status %s", url, reply.status)
    return reply.status < 300
