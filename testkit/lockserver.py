"""A lock service as a real process, on free ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
_SERVE = "from tidelock.cli.main import main; import sys; sys.exit(main(sys.argv[1:]))"


@dataclass(slots=True)
class ServiceProcess:
    """`tidelock serve` on its own store; it can be killed and restarted."""

    store: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    http_port: int = 0
    grpc_port: int = 0
    popen: subprocess.Popen[str] | None = None
    log: Path | None = None

    def start(self) -> Self:
        """Start the process and wait until it serves; a restart uses the same ports."""
        command = [sys.executable, "-c", _SERVE, "serve", "--json", "--store", self.store]
        command += ["--http-port", str(self.http_port), "--grpc-port", str(self.grpc_port)]
        sink = self.log.open("ab") if self.log else subprocess.DEVNULL
        self.popen = subprocess.Popen(
            [*command, *self.args],
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
        if self.log:
            sink.close()  # type: ignore[union-attr]
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        facts = json.loads(line or "{}")
        assert facts.get("event") == "serving", line
        self.http_port, self.grpc_port = facts["http_port"], facts["grpc_port"]
        return self

    @property
    def url(self) -> str:
        """Return the base URL of the HTTP API."""
        return f"http://{HOST}:{self.http_port}"

    @property
    def grpc_address(self) -> str:
        """Return the address of the gRPC API."""
        return f"{HOST}:{self.grpc_port}"

    def kill(self) -> None:
        """Kill the process, as in a crash."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the process with SIGTERM; return its exit code."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> int:
        assert self.popen is not None
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        code = self.popen.wait(60)
        if self.popen.stdout is not None:
            self.popen.stdout.close()
        return code

    def __enter__(self) -> Self:
        """Start the process unless it runs."""
        return self if self.popen is not None else self.start()

    def __exit__(self, *error: object) -> None:
        """Kill the process."""
        if self.popen is not None and self.popen.poll() is None:
            self.kill()
        elif self.popen is not None and self.popen.stdout is not None:
            self.popen.stdout.close()
