"""Where a table's properties are kept, and how they change without a moment of having none.

Java replaces the file by deleting it and writing it anew, with a copy in `hoodie.properties.backup`
for as long as that takes. So a reader that finds the file missing or cut short takes the backup.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from tidelock.base.errors import (
    Conflict,
    DataCorrupt,
    NotFound,
    OutcomeUnknown,
    RecordFromFuture,
    Unavailable,
)
from tidelock.base.javaproperties import parse_properties, render_properties
from tidelock.base.outcome import Landed, NotLanded, Unknown
from tidelock.store.contract import Create, Match, ObjectStore, StoredObject
from tidelock.store.readback import Patience, put_checked
from tidelock.table.properties import CHECKSUM, TableProperties
from tidelock.table.timeline.instant import format_time

KEY: Final = ".hoodie/hoodie.properties"
BACKUP_KEY: Final = ".hoodie/hoodie.properties.backup"

# Hadoop keeps checksums of local files beside them. One that outlives its file's bytes makes Java
# refuse the file, so they go before the bytes change.
_SIDE_FILES: Final = (
    ".hoodie/.hoodie.properties.crc",
    ".hoodie/.hoodie.properties.backup.crc",
)


def load_properties(store: ObjectStore) -> TableProperties:
    """Return a table's properties, from the backup while a writer is replacing them.

    Raises: `NotFound` if there is no table, `DataCorrupt`, `Unsupported`.
    """
    steps = reading(store.uri)
    key = next(steps)
    while True:
        try:
            key = steps.send(store.get(key))
        except StopIteration as end:
            found: TableProperties = end.value
            return found


def reading(uri: str) -> Generator[str, StoredObject | None, TableProperties]:
    """Return the steps of `load_properties`: yields keys to get, is sent what is there."""
    problem: DataCorrupt | None = None
    doubtful: TableProperties | None = None
    # The backup goes only after the file is back. Who found neither came between the two looks.
    for key in (KEY, BACKUP_KEY, KEY, BACKUP_KEY):
        found = yield key
        if found is None:
            continue
        try:
            properties = decode(found.body, where=f"{uri}/{key}")
        except RecordFromFuture:
            raise
        except DataCorrupt as error:
            problem = problem or error
            continue
        if key == BACKUP_KEY or _is_whole(found):
            return properties
        doubtful = properties
    if doubtful is not None:
        return doubtful
    if problem is not None:
        raise problem
    raise NotFound(
        f"{uri} is not a Hudi table: it has no {KEY}",
        hint="give the table's base path, or create the table",
    )


def decode(body: bytes, *, where: str) -> TableProperties:
    """Return the properties in `body`. Raises: `DataCorrupt` naming `where`, `Unsupported`."""
    try:
        values = parse_properties(body.decode("latin-1"))
    except ValueError as error:
        raise DataCorrupt(f"{where} is broken: {error}", hint="restore it from a copy") from error
    return TableProperties(values, where)


def create_properties(
    store: ObjectStore, properties: TableProperties, *, patience: Patience
) -> TableProperties:
    """Make a table by writing its properties. Raises: `Conflict` if there is one already."""
    body = _encode(properties, "Properties saved on", patience)
    outcome = put_checked(store, KEY, body, Create(), patience=patience)
    match outcome:
        case Landed():
            return load_properties(store)
        case NotLanded():
            raise Conflict(
                f"{store.uri} already is a Hudi table", hint="open it, or choose another base path"
            )
        case Unknown(cause):
            raise OutcomeUnknown(f"{store.uri}/{KEY} may or may not be written: {cause}")


def update_properties(
    store: ObjectStore, changes: Mapping[str, str | None], *, patience: Patience
) -> TableProperties:
    """Set some properties, and remove those given as None. For whoever holds the table's lock.

    A crash at any point leaves the old or the new properties, and at most a backup, which the next
    update removes. Raises: `Conflict` if somebody else changed them meanwhile, `OutcomeUnknown`.
    """
    before = _recovered(store, patience)
    after = decode(before.body, where=f"{store.uri}/{KEY}").changed(changes)
    for side_file in _SIDE_FILES:
        store.delete(side_file)
    _back_up(store, before.body, patience)
    body = _encode(after, "Updated at", patience)
    outcome = put_checked(store, KEY, body, Match(before.version), patience=patience)
    match outcome:
        case Landed():
            store.delete(BACKUP_KEY)
            return load_properties(store)
        case NotLanded():
            store.delete(BACKUP_KEY)
            raise Conflict(
                f"{store.uri}/{KEY} was changed by somebody else meanwhile",
                hint="take the table's lock before changing its properties, then try again",
            )
        case Unknown(cause):
            raise OutcomeUnknown(
                f"{store.uri}/{KEY} may or may not be changed: {cause}",
                hint="read the table's properties before trying again",
            )


def _back_up(store: ObjectStore, body: bytes, patience: Patience) -> None:
    match put_checked(store, BACKUP_KEY, body, Create(), patience=patience):
        case Landed():
            return
        case NotLanded(reason):
            raise Conflict(
                f"{store.uri}/{BACKUP_KEY} was not written: {reason}",
                hint="somebody else is changing the table's properties: take its lock first",
            )
        case Unknown(cause):
            raise Unavailable(f"{store.uri}/{KEY} was not changed: no backup of it, {cause}")


def _recovered(store: ObjectStore, patience: Patience) -> StoredObject:
    """Return the properties file, after undoing what an update that died left behind."""
    found = store.get(KEY)
    sound = found is not None and _is_sound(found)
    if found is not None and sound and _is_whole(found):
        store.delete(BACKUP_KEY)
        return found
    backup = store.get(BACKUP_KEY)
    if backup is None:
        load_properties(store)
        if found is not None and sound:
            return found
        raise _being_replaced(store)
    for side_file in _SIDE_FILES:
        store.delete(side_file)
    mode = Create() if found is None else Match(found.version)
    put_checked(store, KEY, backup.body, mode, patience=patience)
    restored = store.get(KEY)
    if restored is None or restored.body != backup.body:
        raise _being_replaced(store)
    store.delete(BACKUP_KEY)
    return restored


def _being_replaced(store: ObjectStore) -> Conflict:
    return Conflict(
        f"{store.uri}/{KEY} is being replaced by somebody else", hint="take the table's lock first"
    )


def _is_sound(found: StoredObject) -> bool:
    try:
        decode(found.body, where=KEY)
    except RecordFromFuture:
        return True
    except DataCorrupt:
        return False
    return True


def _is_whole(found: StoredObject) -> bool:
    """Tell whether a file that can be read is surely not the beginning of a longer one.

    Every line that Java writes ends, and every file it writes has the checksum somewhere.
    """
    return found.body.endswith(b"\n") and CHECKSUM.encode() in found.body


def _encode(properties: TableProperties, verb: str, patience: Patience) -> bytes:
    """Return the file's bytes, unlike those of any other write, so that it can be read back."""
    time = format_time(patience.clock.now().wall_epoch_ms)
    day, clock = f"{time[:4]}-{time[4:6]}-{time[6:8]}", f"{time[8:10]}:{time[10:12]}:{time[12:14]}"
    comments = [f"{verb} {day}T{clock}.{time[14:]}Z", f"tidelock {patience.ids.uuid()}"]
    # The checksum goes last, so that no beginning of the file passes for the whole.
    ordered = dict(sorted(properties.values.items(), key=lambda pair: (pair[0] == CHECKSUM, pair)))
    return render_properties(ordered, comments=comments).encode("ascii")
