"""Health checks of the application as in Dapr: a periodic GET with a failure threshold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidelock.core.errors import ConfigInvalid

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppHealth:
    """A health check: URL, interval, timeout, and failures in a row that mean unhealthy."""

    url: str
    interval_s: float = 5.0
    timeout_s: float = 0.5
    threshold: int = 3

    def __post_init__(self) -> None:
        """Validate the settings. Raises: `ConfigInvalid`."""
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigInvalid(
                f"--app-health: expected an HTTP URL, got {self.url!r}",
                hint="write http://host:port/path",
            )
        if self.interval_s <= 0 or self.timeout_s <= 0 or self.threshold < 1:
            raise ConfigInvalid("the health check needs a positive interval, timeout and threshold")

    async def watch(self, on_change: Callable[[bool], None]) -> None:
        """Check forever; call `on_change` when the application becomes unhealthy or healthy."""
        failures, healthy = 0, True
        while True:
            failures = 0 if await self._is_healthy() else failures + 1
            if (failures < self.threshold) != healthy:
                healthy = not healthy
                state = "healthy" if healthy else "unhealthy"
                logger.warning("the application at %s is %s", self.url, state)
                on_change(healthy)
            await asyncio.sleep(self.interval_s)

    async def _is_healthy(self) -> bool:
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
