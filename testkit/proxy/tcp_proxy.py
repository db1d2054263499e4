"""A proxy for any TCP protocol: it can lose one reply, close all connections, or refuse new ones.

It does not parse what it forwards; a test selects the reply to lose by bytes of its request.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


class TcpProxy:
    """A proxy in front of one server, on a free loopback port."""

    def __init__(self, host: str, port: int) -> None:
        """Listen and serve clients."""
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._guard = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._marker = b""
        self._shut = False
        self.lost = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that clients use instead of the server's."""
        return int(self._listener.getsockname()[1])

    def lose_reply_to(self, marker: bytes) -> None:
        """Forward the next request with these bytes, and close its connection at the reply."""
        with self._guard:
            self._marker = marker

    def cut(self) -> None:
        """Close all connections; new ones are served."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _end(pair)

    def shut(self) -> None:
        """Close all connections, and new ones as well, until `open`."""
        self._shut = True
        self.cut()

    def open(self) -> None:
        """Serve new connections again."""
        self._shut = False

    def stop(self) -> None:
        """Close all connections and stop listening."""
        self._shut = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self._thread.join(5)

    def __enter__(self) -> Self:
        """Serve for the duration of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop serving."""
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._shut:
                client.close()
                continue
            try:
                server = socket.create_connection(self._upstream, timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._guard:
                self._pairs.append(pair)
            armed = threading.Event()
            threading.Thread(target=self._up, args=(pair, armed), daemon=True).start()
            threading.Thread(target=self._down, args=(pair, armed), daemon=True).start()

    def _up(self, pair: tuple[socket.socket, socket.socket], armed: threading.Event) -> None:
        client, server = pair
        with suppress(OSError):
            while chunk := client.recv(_CHUNK_BYTES):
                with self._guard:
                    if self._marker and self._marker in chunk:
                        self._marker = b""
                        armed.set()
                server.sendall(chunk)
        _end(pair)

    def _down(self, pair: tuple[socket.socket, socket.socket], armed: threading.Event) -> None:
        client, server = pair
        with suppress(OSError):
            while chunk := server.recv(_CHUNK_BYTES):
                if armed.is_set():
                    self.lost += 1
                    break
                client.sendall(chunk)
        _end(pair)


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for one in pair:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
