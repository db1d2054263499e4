"""What a table must be before anything of it is changed here, by a write or by a service (C110).

Two things that Java writers do by default would hide acknowledged rows from somebody:

  * A metadata table, from which Hudi's readers list files: what is not entered there is invisible
    to them, and entering it is not supported.
  * A timeline in local time: all comparisons are on digits, and ours are in UTC. West of it, what
    Java commits next would be older than our last commit; east of it, ours than Java's.

Such a table is refused, or changed the way a Java writer changes it, if the settings say so. Both
may come about while a table is open, so the properties are read again for every change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.base.clock import Now
from tidelock.base.errors import Conflict, Unsupported
from tidelock.store.contract import ObjectMeta, ObjectStore, StoredObject
from tidelock.store.readback import Patience
from tidelock.table.properties import (
    METADATA_FOLDER,
    METADATA_INFLIGHT,
    METADATA_PARTITIONS,
    TIMEZONE,
    TableProperties,
)
from tidelock.table.properties_file import KEY, reading, update_properties
from tidelock.table.timeline.instant import format_time, parse_instant
from tidelock.txn.config import (
    METADATA_POLICY,
    TIMEZONE_POLICY,
    MetadataPolicy,
    TimezonePolicy,
    TxnSettings,
)
from tidelock.txn.effects import Get, List, ReadClock, Steps


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a table is not to be changed here, and what to do about it."""

    about: str
    why: str
    hint: str


def obstacles(
    properties: TableProperties, settings: TxnSettings | None = None
) -> Iterator[Obstacle]:
    """Yield what is in the way of changes; with `settings`, what they do not remove by themselves.

    Pure.
    """
    disables = settings is not None and settings.metadata_policy is MetadataPolicy.DISABLE
    if properties.has_metadata_table and not disables:
        inflight = properties.values.get(METADATA_INFLIGHT, "")
        said = ",".join(properties.metadata_partitions) or f"{inflight} (being built)"
        yield Obstacle(
            "metadata table",
            f"has a metadata table ({METADATA_PARTITIONS} = {said}), which is not updated here, so"
            " Java readers would not see what is changed",
            f"set {METADATA_POLICY.key}=disable to remove it: readers then list the files; and"
            " hoodie.metadata.enable=false for the Java writers, which would make it again",
        )
    sets_utc = settings is not None and settings.timezone_policy is TimezonePolicy.UTC
    if not properties.is_utc and not sets_utc:
        zone = properties.values.get(TIMEZONE, "")
        said = f"{TIMEZONE} = {zone}" if zone else f"no {TIMEZONE}, so LOCAL"
        yield Obstacle(
            "time zone",
            f"has a timeline in local time ({said}), and ours would be in UTC: of two commits the"
            " later one could be hidden by the earlier",
            f"set {TIMEZONE_POLICY.key}=utc to make it a table in UTC, as Spark's Hudi jobs then"
            " keep it; other Java writers have to run with -Duser.timezone=UTC",
        )


class Preconditions:
    """The properties of a table as they were last read, and whether it may be changed.

    Guarantees: after `check` has returned, the table was one that may be changed when it was read.
    """

    def __init__(self, uri: str, properties: TableProperties, settings: TxnSettings) -> None:
        """Begin with what the caller has read; nothing is checked yet."""
        self.uri = uri
        self.settings = settings
        self.properties = properties
        self._version = ""

    def check(self) -> Steps[None]:
        """Read the properties, if they have changed, and refuse a table that is not to be changed.

        Raises: `Unsupported` saying what is in the way and what to do, `Conflict` if what decides
        how rows are written is not what it was when the table was opened.
        """
        found: StoredObject | None = yield Get(KEY)
        if found is not None and found.version == self._version:
            return
        now = yield from _read(self.uri, found)
        for key in self.properties.decided_otherwise(now):
            before, after = (each.values.get(key) or "nothing" for each in (self.properties, now))
            raise Conflict(
                f"{self.uri} was changed since it was opened: {key} was {before} and is {after}",
                hint="open the table again",
            )
        for obstacle in obstacles(now, self.settings):
            raise Unsupported(f"{self.uri} {obstacle.why}", hint=obstacle.hint)
        if not now.is_utc:
            yield from _check_times(self.uri, now.timeline_folder)
        self.properties = now
        self._version = "" if found is None else found.version

    @property
    def met(self) -> bool:
        """Tell whether nothing has to be changed of the table itself, by what was read last."""
        return next(obstacles(self.properties), None) is None

    def meet(self, store: ObjectStore, patience: Patience) -> None:
        """Change the table itself as the settings ask, by whoever holds its lock."""
        changes: dict[str, str | None] = {} if self.properties.is_utc else {TIMEZONE: "UTC"}
        metadata = self.properties.has_metadata_table
        if metadata:
            # The properties come first: a reader in between must not look for what is half gone.
            changes |= {METADATA_PARTITIONS: None, METADATA_INFLIGHT: None}
        if changes:
            self.properties = update_properties(store, changes, patience=patience)
            self._version = ""
        for meta in tuple(store.list(f"{METADATA_FOLDER}/")) if metadata else ():
            store.delete(meta.key)


def _check_times(uri: str, folder: str) -> Steps[None]:
    """Raise `Unsupported` if a table in local time has times later than it is in UTC.

    What is written in UTC from now on would be older than they are.
    """
    listed: tuple[ObjectMeta, ...] = yield List(f"{folder}/")
    found = (parse_instant(meta.key.removeprefix(f"{folder}/")) for meta in listed)
    times = (time for each in found if each for time in (each.requested, each.completion))
    clock: Now = yield ReadClock()
    latest, now = max(times, default=""), format_time(clock.wall_epoch_ms)
    if latest > now:
        raise Unsupported(
            f"{uri} has a timeline in local time up to {latest}, and it is {now} in UTC: what is"
            " written in UTC before that would be older than what is there",
            hint=f"stop its writers until it is {latest} in UTC, then try again",
        )


def _read(uri: str, found: StoredObject | None) -> Steps[TableProperties]:
    """Read the properties as `load_properties` does, with the first request made already."""
    steps = reading(uri)
    next(steps)
    while True:
        try:
            key = steps.send(found)
        except StopIteration as end:
            properties: TableProperties = end.value
            return properties
        found = yield Get(key)
