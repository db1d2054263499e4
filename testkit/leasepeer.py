"""Kubernetes' own leader election (client-go) in a separate process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testkit.java.peers import LockPeer
from testkit.servers.kubernetes import KubernetesServer


@contextmanager
def lease_peer(server: KubernetesServer, name: str) -> Iterator[LockPeer]:
    """Run client-go's leader election for the Lease `name`; the Lease is not held yet."""
    files = [server.ca_file, server.token_file]
    with (
        tempfile.TemporaryDirectory(prefix="tidelock-go-") as folder,
        LockPeer.run([server.lease_peer, server.endpoint, *files, name], Path(folder)) as peer,
    ):
        yield peer
