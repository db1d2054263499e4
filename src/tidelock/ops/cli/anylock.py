"""The lock a command works with, whichever provider the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.text import Text

from tidelock.base.errors import AcquireTimeout, Conflict, InvalidInput, NotFound, Unsupported
from tidelock.lock.holding import LostCallback
from tidelock.lock.provider import Holder
from tidelock.lockproviders.keys import RESOURCE, TABLE_NAME, of_table
from tidelock.lockproviders.registry import open_provider
from tidelock.ops.cli.output import Output, duration, facts, moment
from tidelock.store.uri import open_store
from tidelock.table.properties_file import load_properties

_FOREVER_MS = float(10**12)


class AnyLock(Protocol):
    """What `run` and `acquire` need of a lock."""

    @property
    def uri(self) -> str:
        """The lock, for messages."""
        ...

    @property
    def owner(self) -> str:
        """The name of the holding."""
        ...

    @property
    def token(self) -> int:
        """The fencing token; 0 where there is none."""
        ...

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token."""
        ...

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` when the lock is lost."""
        ...

    def release(self) -> None:
        """Give the lock back."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class ProviderLock:
    """A lock of one of the providers that are not the storage lock."""

    def __init__(self, uri: str, settings: Mapping[str, object]) -> None:
        """Open the provider; `uri` is the table's base path, or the name of the lock."""
        self._uri = uri
        self._provider = open_provider(_named(uri, settings))

    @property
    def uri(self) -> str:
        """The lock, for messages; a user's own provider need not have another name for it."""
        return str(getattr(self._provider, "uri", self._uri))

    @property
    def owner(self) -> str:
        """The name of the holding; empty where the provider does not tell."""
        return str(getattr(self._provider, "owner", ""))

    @property
    def token(self) -> int:
        """The fencing token; 0 where there is none."""
        return self._provider.check()

    def acquire(self, timeout_s: float | None = None) -> int:
        """Wait for the lock and return its token.

        Raises: `AcquireTimeout`, `InvalidInput`.
        """
        if timeout_s is not None and not timeout_s >= 0:
            raise InvalidInput(f"a timeout of {timeout_s} s cannot be", hint="use 0 or more")
        if not self._provider.try_lock(_FOREVER_MS if timeout_s is None else timeout_s * 1000):
            raise AcquireTimeout(
                f"the lock {self.uri} was not acquired",
                hint="wait longer, or see who holds it with `tidelock lock status`",
            )
        return self.token

    def on_lost(self, callback: LostCallback) -> None:
        """Call `callback` when the lock is lost."""
        self._provider.on_lost(callback)

    def release(self) -> None:
        """Give the lock back."""
        self._provider.unlock()

    def close(self) -> None:
        """Leave nothing behind."""
        self._provider.close()

    def show(self, output: Output, now_epoch_ms: int) -> None:
        """Say who holds the lock."""
        held = self._provider.holder()
        state = "free" if held is None else "held"
        style = "green" if held is None else "bold cyan"
        shown = {"lock": self.uri, "state": state, **_facts(held)}
        headline = Text.assemble(f"{self.uri}  ", (state, style))
        output.result(shown, headline, *facts(_rows(held, now_epoch_ms)))

    def force(self, output: Output, if_token: int | None) -> None:
        """Release the lock whoever holds it, if its token is the one expected.

        Raises: `Conflict`.
        """
        held = self._provider.holder()
        if held is not None and if_token is not None and held.token != if_token:
            raise Conflict(
                f"{self.uri} has token {held.token}, not {if_token}: it is another holding",
                hint="look with `tidelock lock status`; nothing was done",
            )
        changed = held is not None and self._provider.force_release()
        facts_ = {"lock": self.uri, "changed": changed, "state": "free"}
        if held is None or not changed:
            output.result(facts_, f"{self.uri} is free; nothing to release")
            return
        output.result(
            {**facts_, "released_owner": held.owner, "released_token": held.token},
            Text(f"released {self.uri}", style="green"),
            f"  was held by {held.owner}",
        )


def _named(uri: str, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings as a writer of the table at `uri` has them, if there is a table.

    The name of its lock must not depend on whether the store answers: an outage is raised.
    """
    if RESOURCE.value(settings) or TABLE_NAME.value(settings):
        return of_table(settings, uri)
    try:
        store = open_store(uri, settings)
    except (InvalidInput, Unsupported):
        # The name of a lock, and no place.
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
        rows.append(("held since", moment(held.since_epoch_ms)))
    if held.expires_epoch_ms is not None:
        left_ms = held.expires_epoch_ms - now_epoch_ms
        rows.append(("expires", f"in {duration(left_ms)} ({moment(held.expires_epoch_ms)})"))
    if held.waiters is not None:
        rows.append(("waiting", str(held.waiters)))
    return rows
