"""Locks of any provider, as the lock commands use them."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from tidelock.cli.output import Output, facts
from tidelock.core.errors import AcquireTimeout, Conflict, InvalidInput, NotFound, Unsupported
from tidelock.core.formatting import duration, format_epoch_ms
from tidelock.hudi.properties import load_properties
from tidelock.lock.client import Lock
from tidelock.lock.config import TABLE_NAME
from tidelock.lock.holding import LostCallback
from tidelock.lock.provider import Holder
from tidelock.lock.providers.config import RESOURCE, of_table
from tidelock.lock.providers.registry import open_provider
from tidelock.storage.uri import open_store

_FOREVER_MS = float(10**12)


class ProviderLock:
    """A lock of a provider other than the storage lock."""

    def __init__(self, uri: str, settings: Mapping[str, object]) -> None:
        """Open the provider; `uri` is the base path of the table, or the name of the lock."""
        self._uri = uri
        self._provider = open_provider(_with_lock_name(uri, settings))

    @property
    def uri(self) -> str:
        """The location of the lock, for messages; a custom provider may have no name for it."""
        return str(getattr(self._provider, "uri", self._uri))

    @property
    def owner(self) -> str:
        """The owner; empty if the provider does not report it."""
        return str(getattr(self._provider, "owner", ""))

    @property
    def token(self) -> int:
        """The fencing token; 0 if the provider has none."""
        return self._provider.check()

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token. Raises: `AcquireTimeout`, `InvalidInput`."""
        if timeout_s is not None and not timeout_s >= 0:
            raise InvalidInput(
                f"timeout: expected 0 or more seconds, got {timeout_s:g}",
                hint="use a value of 0 or more",
            )
        if not self._provider.try_lock(_FOREVER_MS if timeout_s is None else timeout_s * 1000):
            raise AcquireTimeout(
                f"lock {self.uri}: not acquired within the timeout",
                hint="wait longer, or show the holder with `tidelock lock status`",
            )
        return self.token

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` when the lock is lost."""
        self._provider.on_lost(callback)

    def release(self) -> None:
        """Release the lock."""
        self._provider.unlock()

    def close(self) -> None:
        """Release all resources."""
        self._provider.close()

    def show(self, output: Output, now_epoch_ms: int) -> None:
        """Show the holder of the lock."""
        held = self._provider.holder()
        state = "free" if held is None else "held"
        style = "green" if held is None else "bold cyan"
        shown = {"lock": self.uri, "state": state, **_facts(held)}
        headline = Text.assemble(f"{self.uri}  ", (state, style))
        output.result(shown, headline, *facts(_rows(held, now_epoch_ms)))

    def force_release(self, output: Output, if_token: int | None) -> None:
        """Release the lock of any holder, if its token is the expected one. Raises: `Conflict`."""
        held = self._provider.holder()
        if held is not None and if_token is not None and held.token != if_token:
            raise Conflict(
                f"lock {self.uri}: expected token {if_token}, found {held.token};"
                " nothing was released",
                hint="show the holder with `tidelock lock status`",
            )
        changed = held is not None and self._provider.force_release()
        result = {"lock": self.uri, "changed": changed, "state": "free"}
        if held is None or not changed:
            output.result(result, f"{self.uri} is free; nothing to release")
            return
        output.result(
            {**result, "released_owner": held.owner, "released_token": held.token},
            Text(f"released {self.uri}", style="green"),
            f"  was held by {held.owner}",
        )


AnyLock = Lock | ProviderLock
"""A lock that `run` and `acquire` can hold."""


def _with_lock_name(uri: str, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with the lock name that a writer of the table at `uri` uses.

    The name must not depend on whether the store is available: an outage is raised.
    """
    if RESOURCE.value(settings) or TABLE_NAME.explicit(settings):
        return of_table(settings, uri)
    try:
        store = open_store(uri, settings)
    except (InvalidInput, Unsupported):
        # `uri` is the name of a lock, not a location.
        return of_table(settings, uri)
    try:
        table = load_properties(store)
    except NotFound:
        return of_table(settings, uri)
    finally:
        store.close()
    return of_table(settings, uri, name=table.name, database=table.database)


def _facts(held: Holder | None) -> dict[str, object]:
    return {
        "owner": held.owner if held else None,
        "token": held.token if held else None,
        "since_epoch_ms": held.since_epoch_ms if held else None,
        "valid_until_epoch_ms": held.expires_epoch_ms if held else None,
        "waiters": held.waiters if held else None,
    }


def _rows(held: Holder | None, now_epoch_ms: int) -> list[tuple[str, str | Text]]:
    if held is None:
        return []
    rows: list[tuple[str, str | Text]] = [("owner", held.owner)]
    if held.token:
        rows.append(("token", str(held.token)))
    if held.since_epoch_ms is not None:
        rows.append(("held since", format_epoch_ms(held.since_epoch_ms)))
    if held.expires_epoch_ms is not None:
        left_ms = held.expires_epoch_ms - now_epoch_ms
        rows.append(
            ("expires", f"in {duration(left_ms)} ({format_epoch_ms(held.expires_epoch_ms)})")
        )
    if held.waiters is not None:
        rows.append(("waiting", str(held.waiters)))
    return rows
