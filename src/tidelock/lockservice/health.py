"""The application's health, as Dapr checks it: a GET now and then; a few failures in a row."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidelock.base.errors import ConfigInvalid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppHealth:
    """Where to ask, how often, how long to wait, and how many failures make an application ill."""

    url: str
    interval_s: float = 5.0
    timeout_s: float = 0.5
    threshold: int = 3

    def __post_init__(self) -> None:
        """Refuse what cannot be asked."""
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigInvalid(
                f"{self.url!r} is not an address of an application",
                hint="write http://host:port/path",
            )
        if self.interval_s <= 0 or self.timeout_s <= 0 or self.threshold < 1:
            raise ConfigInvalid("the health check's interval, time-out and threshold are positive")

    async def watch(self, tell: Callable[[bool], None]) -> None:
        """Ask for ever; call `tell` when the application falls ill, and when it is well again."""
        failures, ill = 0, False
        while True:
            failures = 0 if await self._is_well() else failures + 1
            if (failures >= self.threshold) != ill:
                ill = not ill
                logger.warning("the application at %s is %s", self.url, "ill" if ill else "well")
                tell(not ill)
            await asyncio.sleep(self.interval_s)

    async def _is_well(self) -> bool:
        parts = urlsplit(self.url)
        writer = None
        try:
            async with asyncio.timeout(self.timeout_s):
                host, port = parts.hostname or "", parts.port or 80
                reader, writer = await asyncio.open_connection(host, port)
                request = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {host}\r\n"
                writer.write(f"{request}Connection: close\r\n\r\n".encode())
                line = await reader.readline()
                return line.split()[1:2] != [] and line.split()[1].startswith(b"2")
        except (OSError, TimeoutError, ValueError):
            return False
        finally:
            if writer is not None:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
