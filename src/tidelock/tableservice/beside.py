"""Table services in a thread of their own, beside the writes that make them due."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from tidelock.base.config import ConfigKey, boolean, declare
from tidelock.base.runtime import start_thread
from tidelock.engine.service import Watch
from tidelock.tableservice import config as c
from tidelock.tableservice.clustering import config as cc
from tidelock.tableservice.inline import Inline
from tidelock.tableservice.ttl.config import TTL_INLINE

logger = logging.getLogger(__name__)

_GROUP: Final = "Table services"

COMPACT_ASYNC = declare(
    ConfigKey(
        "hoodie.datasource.compaction.async.enable",
        boolean,
        default=False,
        doc="compact in a thread beside the writer when a write makes it due; Hudi's default, true,"
        " is about its streaming writers",
        group=_GROUP,
    )
)
CLUSTER_ASYNC = declare(
    ConfigKey(
        "hoodie.clustering.async.enabled",
        boolean,
        default=False,
        doc="cluster in a thread beside the writer when writes make it due",
        aliases=("hoodie.datasource.clustering.async.enable",),
        group=_GROUP,
    )
)
CLUSTER_ASYNC_COMMITS = declare(
    ConfigKey(
        "hoodie.clustering.async.max.commits",
        int,
        default=4,
        doc="commits after which clustering beside the writer is due",
        group=_GROUP,
    )
)
CLEAN_ASYNC = declare(
    ConfigKey(
        "hoodie.clean.async.enabled",
        boolean,
        default=False,
        doc="clean in a thread beside the writer, not after its writes",
        aliases=("hoodie.clean.async",),
        group=_GROUP,
    )
)
ARCHIVE_ASYNC = declare(
    ConfigKey(
        "hoodie.archive.async",
        boolean,
        default=False,
        doc="archive in a thread beside the writer, not after its writes",
        group=_GROUP,
    )
)


def split(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object] | None]:
    """Return the settings of services after writes, and those beside writes; None for none.

    What runs beside writes does not run after them too.
    """
    if not c.SERVICES_ENABLED.required(options):
        return dict(options), None
    after, beside = dict(options), dict(options)
    pairs = (
        (COMPACT_ASYNC, c.COMPACT_INLINE),
        (CLUSTER_ASYNC, cc.CLUSTER_INLINE),
        (CLEAN_ASYNC, c.CLEAN_AUTOMATIC),
        (ARCHIVE_ASYNC, c.ARCHIVE_AUTOMATIC),
    )
    chosen = {key.key: key.required(options) for key, _ in pairs}
    for key, inline in pairs:
        wanted = chosen[key.key]
        switched = wanted and (inline not in _AUTOMATIC or inline.required(options))
        beside[inline.key] = switched
        if switched:
            after[inline.key] = False
    beside[c.COMPACT_SCHEDULE_INLINE.key] = beside[cc.CLUSTER_SCHEDULE_INLINE.key] = False
    beside[c.LOG_COMPACT_INLINE.key] = beside[TTL_INLINE.key] = False
    beside[cc.CLUSTER_COMMITS.key] = CLUSTER_ASYNC_COMMITS.required(options)
    return after, beside if any(chosen.values()) else None


_AUTOMATIC: Final = (c.CLEAN_AUTOMATIC, c.ARCHIVE_AUTOMATIC)


class Beside:
    """One thread that does what writes make due, one round after the other.

    Guarantees: what was due when it is stopped has been done by the time that `stop` returns,
    unless it is told to cancel; then the work at hand is given up between two tasks, and its plan
    is left to others or undone.
    """

    def __init__(self, name: str, make: Callable[[Watch], Inline]) -> None:
        """Start no thread yet. `make` is called in it, and makes what it works with."""
        self._name = name
        self._make = make
        self._changed = threading.Condition()
        self._due = False
        self._stopping = False
        self._cancelled = False
        self._join: Callable[[], None] | None = None

    def nudge(self) -> None:
        """Say that a write was made."""
        with self._changed:
            if self._stopping:
                return
            self._due = True
            if self._join is None:
                self._join = start_thread(f"tidelock-services {self._name}", self._work).join
            self._changed.notify_all()

    def stop(self, *, cancel: bool = False) -> None:
        """End the thread; stopping twice is no error."""
        with self._changed:
            self._stopping = True
            self._cancelled = self._cancelled or cancel
            join = self._join
            self._changed.notify_all()
        if join is not None:
            join()

    def _work(self) -> None:
        inline: Inline | None = None
        try:
            while self._next_round():
                inline = inline or self._make(Watch(stopped=self._why_stopped))
                inline.after_write()
        except Exception:
            # Writes go on without it; the next table that is opened starts another one.
            logger.exception("%s: services beside the writer ended", self._name)
        finally:
            if inline is not None:
                inline.writer.close()

    def _next_round(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._due or self._stopping)
            goes_on = self._due and not self._cancelled
            self._due = False
            return goes_on

    def _why_stopped(self) -> str | None:
        return "the table was closed" if self._cancelled else None
