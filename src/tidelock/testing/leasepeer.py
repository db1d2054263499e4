"""Kubernetes' own leader election (client-go), in a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelock.testing.java.peers import LockPeer
from tidelock.testing.servers.kubernetes import KubernetesServer


@contextmanager
def lease_peer(server: KubernetesServer, name: str) -> Iterator[LockPeer]:
    """Run client-go's election for the Lease `name`; it holds nothing yet."""
    files = [str(server.ca_file), str(server.token_file)]
    with tempfile.NamedTemporaryFile(prefix="tidelock-go-", suffix=".log") as log:
        process = subprocess.Popen(
            [server.lease_peer, server.endpoint, *files, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        peer = LockPeer(process, Path(log.name))
        try:
            peer.answer()
            yield peer
        finally:
            peer.close()
