"""Azurite: the blob service of Azure Storage, in memory.

Guarantees: it honours conditions on PUT and DELETE, also in a race. Like Azure, it returns 409 when
a blob to create exists, and 412 for every other failed condition.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from testkit.servers.cache import ToolCache
from testkit.servers.node import node_package
from testkit.servers.process import HOST, Launch, answers_http, start
from testkit.servers.server import Reply, RunningServer, send

# Later versions need a Node.js version that Debian 12 does not have.
VERSION = "3.35.0"

ACCOUNT = "devstoreaccount1"
# The account key from Azurite's documentation, the same for every emulator; it is not secret.
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_API_VERSION = "2021-12-02"


@dataclass(frozen=True, slots=True)
class AzureServer(RunningServer):
    """A blob endpoint with one account; the account is the first part of every path."""

    account: str = ACCOUNT
    account_key: str = ACCOUNT_KEY

    @property
    def account_url(self) -> str:
        """The base URL of containers."""
        return f"{self.endpoint}/{self.account}"

    def create_container(self, container: str) -> None:
        """Create a container; it may exist already."""
        reply = self.request("PUT", f"/{container}?restype=container")
        if reply.status not in (201, 409):
            raise AssertionError(
                f"{self.name} did not create container {container}: {reply.status} {reply.body!r}"
            )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        endpoint: str | None = None,
    ) -> Reply:
        """Send one request signed with the account key, to the server or a proxy in front of it."""
        url = f"{endpoint or self.endpoint}/{self.account}{path}"
        sent = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API_VERSION}
        sent |= {name.lower(): value for name, value in (headers or {}).items()}
        if method == "PUT":
            sent["content-length"] = str(len(body))
        text = _text_to_sign(method, url, sent, self.account)
        key = base64.b64decode(self.account_key)
        digest = hmac.new(key, text.encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        sent["authorization"] = f"SharedKey {self.account}:{signature}"
        return send(url, method=method, headers=sent, body=body)


def _text_to_sign(method: str, url: str, headers: dict[str, str], account: str) -> str:
    signed = "content-encoding content-language content-length content-md5 content-type date "
    signed += "if-modified-since if-match if-none-match if-unmodified-since range"
    values = [headers.get(name, "") for name in signed.split()]
    values[2] = "" if values[2] == "0" else values[2]
    parts = urlsplit(url)
    own = sorted((name, value) for name, value in headers.items() if name.startswith("x-ms-"))
    lines = [method, *values, *(f"{name}:{value}" for name, value in own)]
    lines += [f"/{account}{parts.path}"]
    lines += [f"{name}:{value}" for name, value in sorted(parse_qsl(parts.query))]
    return "\n".join(lines)


def install(cache: ToolCache) -> tuple[Path, Path]:
    """Return `node` and the script of Azurite's blob service."""
    node, package = node_package(cache, package="azurite", version=VERSION)
    return node, package / "dist" / "src" / "blob" / "main.js"


@contextmanager
def azurite(cache: ToolCache | None = None) -> Iterator[AzureServer]:
    """Run Azurite's blob service for the duration of the block."""
    node, script = install(cache or ToolCache.default())

    def plan(_home: Path, ports: Sequence[int]) -> Launch:
        address = ["--blobHost", HOST, "--blobPort", str(ports[0])]
        quiet = ["--silent", "--disableTelemetry"]
        return Launch(
            [node, script, *address, *quiet, "--skipApiVersionCheck", "--inMemoryPersistence"],
            # Once it is ready, Azurite rejects a request without an account with 400.
            ready=lambda: answers_http(ports[0], "/", status=400),
        )

    process, ports = start("azurite", plan, ports=1)
    try:
        yield AzureServer(f"Azurite {VERSION}", f"http://{HOST}:{ports[0]}", process)
    finally:
        process.stop()
