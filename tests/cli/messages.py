"""The most common error messages, produced as users produce them: by commands and the Python API.

    python -m tests.cli.messages

rewrites `messages.txt` after messages have been reworded on purpose.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import tidelock as tl
from tests.cli.program import java_record, now_ms, plant
from tidelock.cli.main import main
from tidelock.core.errors import TidelockError
from tidelock.spark.sql.statement import parse

SNAPSHOT = Path(__file__).with_name("messages.txt")

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64())])
COLUMNS = "id string, day string, n long"
ROW = {"id": "a", "day": "2026-01-01", "n": 1}
EARLIEST = "20200101000000000"
IN_PROCESS = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"

Case = Callable[[Path], object]


def rows(*found: dict[str, object], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.Table.from_pylist(list(found), schema=schema)


def new_table(folder: Path, *, type_: str = "COPY_ON_WRITE", **options: str) -> tl.Table:
    """Create a partitioned table with one row."""
    table = tl.Table.create(
        str(folder / "orders"),
        SCHEMA,
        key="id",
        partition_by="day",
        type=type_,
        name="orders",
        options=options,
    )
    table.upsert(rows(ROW))
    return table


def command(*args: str, before: Callable[[Path], object] | None = None) -> Case:
    """Return the case of a command; `{dir}` in an argument is a new folder."""

    def run(folder: Path) -> None:
        if before is not None:
            before(folder)
        code = main([arg.replace("{dir}", str(folder)) for arg in args])
        assert code, "the command succeeded"

    return run


def on_table(use: Callable[[tl.Table], object], *, type_: str = "COPY_ON_WRITE") -> Case:
    """Return the case of a call on a table with one row."""

    def run(folder: Path) -> None:
        with new_table(folder, type_=type_) as table:
            use(table)

    return run


def with_table(*args: str, type_: str = "COPY_ON_WRITE") -> Case:
    """Return the case of a command on a table with one row."""
    return command(*args, before=lambda folder: new_table(folder, type_=type_).close())


def held_lock(folder: Path) -> None:
    """Leave a lock held for an hour."""
    record = java_record(expired=False, valid_until_epoch_ms=now_ms() + 3_600_000)
    plant(folder / "orders", record)


def corrupt_lock(folder: Path) -> None:
    """Leave an unreadable lock record."""
    plant(folder / "orders", b"{ not a record")


def newer_lock(folder: Path) -> None:
    """Leave a lock record of a newer format."""
    plant(folder / "orders", b'{"expired":false,"validUntil":1,"owner":"o","format":99}')


def including(folder: Path) -> None:
    """Write two properties files that include each other."""
    (folder / "a.properties").write_text("include=b.properties\n")
    (folder / "b.properties").write_text("include=a.properties\n")


def conflict(folder: Path) -> None:
    """Rewrite a row that another writer changes concurrently, without retries."""
    options = {"tidelock.write.rebase.rounds.max": "1"}
    new_table(folder).close()
    with (
        tl.Table.open(str(folder / "orders"), options=options) as table,
        tl.Table.open(str(folder / "orders"), options=options) as other,
    ):

        def compute(snapshot: object) -> pa.Table:
            del snapshot
            other.upsert(rows({**ROW, "n": 2}))
            return rows({**ROW, "n": 3})

        table.rewrite(compute)


def lost_lock(folder: Path) -> None:
    """Release a lock that was force-released."""
    (folder / "orders").mkdir()
    with contextlib.closing(tl.lock(str(folder / "orders"))) as lock:
        lock.acquire(10)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main(["lock", "force-release", str(folder / "orders"), "--yes"])
        lock.release()


def damaged_properties(folder: Path) -> None:
    """Open a table whose properties file is truncated."""
    new_table(folder).close()
    path = folder / "orders/.hoodie/hoodie.properties"
    path.write_text("hoodie.table.name=orders\n")
    tl.Table.open(str(folder / "orders")).close()


def newer_table(folder: Path) -> None:
    """Open a table of a newer version."""
    new_table(folder).close()
    path = folder / "orders/.hoodie/hoodie.properties"
    lines = [
        "hoodie.table.version=99" if line.startswith("hoodie.table.version=") else line
        for line in path.read_text().splitlines()
        if not line.startswith("hoodie.table.checksum=")
    ]
    path.write_text("\n".join(lines))
    tl.Table.open(str(folder / "orders")).close()


def older_rollback(table: tl.Table) -> None:
    """Roll back a commit that has a later commit."""
    first = table.history(1)[0].requested
    table.upsert(rows({**ROW, "n": 2}))
    table.rollback(first)


def savepoint_twice(table: tl.Table) -> None:
    """Create a savepoint at a commit that has one."""
    table.savepoint()
    table.savepoint()


def unparsable(folder: Path) -> None:
    """Parse a statement with a syntax error."""
    del folder
    error = parse("UPDATE orders SET n = WHERE id = 1").error
    assert error is not None
    raise error


ORDERS = "{dir}/orders"
CREATE = ("table", "create", ORDERS)
STREAMER = ("streamer", "--target-base-path", ORDERS)
TYPO = "hoodie.write.lock.wait_time_mss=1"

CASES: dict[str, Case] = {
    # The command line.
    "unknown command": command("lock", "frobnicate"),
    "missing argument": command("lock", "status"),
    "unknown option": command("lock", "status", ORDERS, "--colour"),
    "empty resource": command("lock", "status", ""),
    "unknown scheme": command("lock", "status", "ftp://host/orders"),
    "uri without a bucket": command("lock", "status", "s3:///orders"),
    "path with ..": command("lock", "status", "a/../b"),
    "options that exclude each other": command(
        "lock", "acquire", ORDERS, "--wait", "1", "--no-wait"
    ),
    "negative duration": command("lock", "acquire", ORDERS, "--for", "-1"),
    # Configuration.
    "not an integer": command(
        "lock", "acquire", ORDERS, "--prop", "hoodie.write.lock.wait_time_ms=soon"
    ),
    "out of range": command("lock", "acquire", ORDERS, "--validity", "5"),
    "renewal too rare": command("lock", "acquire", ORDERS, "--validity", "20", "--renew", "10"),
    "unknown key": command("lock", "status", ORDERS, "--prop", TYPO),
    "unknown key of the configuration": command("config", "hoodie.index.typ"),
    "value of a refused key": command(
        *CREATE, "--columns", COLUMNS, "--key", "id", "-O", "hoodie.table.base.file.format=ORC"
    ),
    "not key=value": command("lock", "status", ORDERS, "--prop", "hoodie.table.name"),
    "missing properties file": command("lock", "status", ORDERS, "--props", "{dir}/no.properties"),
    "properties include each other": command(
        "lock", "status", ORDERS, "--props", "{dir}/a.properties", before=including
    ),
    "unknown lock provider": command(
        "lock", "status", ORDERS, "--prop", "hoodie.write.lock.provider=org.example.NoLock"
    ),
    "lock provider that the command cannot use": command(
        "lock", "watch", ORDERS, "--prop", f"hoodie.write.lock.provider={IN_PROCESS}"
    ),
    "unknown concurrency mode": on_table(
        lambda table: tl.Table.open(
            table.uri, options={"hoodie.write.concurrency.mode": "OPTIMISTIC"}
        ).upsert(rows(ROW))
    ),
    "non-blocking without a bucket index": on_table(
        lambda table: tl.Table.open(
            table.uri, options={"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
        ).upsert(rows(ROW)),
        type_="MERGE_ON_READ",
    ),
    # Opening and creating tables.
    "no table": lambda folder: tl.Table.open(str(folder / "orders")),
    "table exists": on_table(lambda table: tl.Table.create(table.uri, SCHEMA, key="id")),
    "no key": command(*CREATE, "--columns", COLUMNS),
    "key not in the schema": command(*CREATE, "--columns", COLUMNS, "--key", "order"),
    "unknown column type": command(*CREATE, "--columns", "id lung", "--key", "id"),
    "unknown table type": command(*CREATE, "--columns", COLUMNS, "--key", "id", "--type", "x"),
    "unsupported table version": command(
        *CREATE, "--columns", COLUMNS, "--key", "id", "--version", "7"
    ),
    "damaged properties": damaged_properties,
    "table of a later version": newer_table,
    # Writing and reading.
    "column missing": on_table(lambda t: t.upsert(rows(ROW).drop_columns(["n"]))),
    "negative limit": on_table(lambda t: t.history(-1)),
    "column named twice": on_table(lambda t: t.read(["id", "id"])),
    "column of another type": on_table(
        lambda t: t.upsert(
            pa.table({"id": ["a"], "day": ["2026-01-01"], "n": [["not", "a", "number"]]})
        )
    ),
    "key is null": on_table(lambda t: t.upsert(rows({**ROW, "id": None}))),
    "unknown operation": on_table(lambda t: t.write(rows(ROW), "upsrt")),
    "no such partition": on_table(lambda t: t.delete_partition(["2020-01-01"])),
    "unknown column": on_table(lambda t: t.read(["amount"])),
    "time that cannot be read": on_table(lambda t: t.read(as_of="yesterday")),
    # Conflicts and history.
    "write conflict": conflict,
    "rollback of an unknown instant": on_table(lambda t: t.rollback(EARLIEST)),
    "rollback below a later commit": on_table(older_rollback),
    "restore to an unknown instant": on_table(lambda t: t.restore(EARLIEST)),
    "savepoint of an unknown instant": on_table(lambda t: t.savepoint(EARLIEST)),
    "second savepoint of a commit": on_table(savepoint_twice),
    # Locks.
    "lock is held": command("lock", "acquire", ORDERS, "--no-wait", before=held_lock),
    "lock record cannot be read": command("lock", "acquire", ORDERS, before=corrupt_lock),
    "lock record of a later format": command("lock", "acquire", ORDERS, before=newer_lock),
    "release without confirmation": command("lock", "force-release", ORDERS, before=held_lock),
    "release with another token": command(
        "lock", "force-release", ORDERS, "--yes", "--if-token", "7", before=held_lock
    ),
    "lock was lost": lost_lock,
    "program that does not exist": command("lock", "run", ORDERS, "--", "{dir}/no-such-program"),
    # Table services.
    "instant without execute": with_table("compact", ORDERS, "run", "--instant", EARLIEST),
    "execution of an unknown plan": with_table(
        "compact", ORDERS, "execute", "--instant", EARLIEST, type_="MERGE_ON_READ"
    ),
    "cancel of an unknown plan": with_table("services", ORDERS, "cancel", EARLIEST),
    "no time to live": with_table("ttl", ORDERS, "run"),
    "restore without a target": with_table("restore", ORDERS, "run"),
    "restore with a target that is scheduled": with_table(
        "restore", ORDERS, "execute", "--to", EARLIEST
    ),
    # Streamer, SQL and stores.
    "unknown source": command(*STREAMER, "--source-class", "JsonFtpSource"),
    "unknown streamer operation": command(
        *(*STREAMER, "--source-class", "JsonDFSSource", "--op", "MERGE"),
        *("--hoodie-conf", "hoodie.streamer.source.dfs.root=/landing"),
    ),
    "missing streamer setting": command(*STREAMER, "--source-class", "JsonDFSSource"),
    "statement that cannot be parsed": unparsable,
    "two statements": lambda _: parse("SELECT 1; SELECT 2"),
    "missing file of statements": command("sql", "--file", "{dir}/no.sql"),
    "store cannot be reached": command(
        *("lock", "status", "s3://lake/orders"),
        *("--prop", "tidelock.s3.endpoint=http://127.0.0.1:9"),
        *("--prop", "hoodie.aws.access.key=k", "--prop", "hoodie.aws.secret.key=s"),
        *("--prop", "tidelock.store.request.timeout.ms=1000"),
    ),
}


def shown(case: Case) -> str:
    """Run a case; return its message and hint without the parts that vary between runs."""
    with tempfile.TemporaryDirectory(prefix="tidelock-messages-") as name:
        folder = Path(name).resolve()
        output = io.StringIO()
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(io.StringIO()):
            try:
                case(folder)
            except TidelockError as error:
                output.write(f"{type(error).__name__}: {error.message}\n")
                output.write(f"  {error.hint}\n" if error.hint else "")
        return _stable(output.getvalue().rstrip(), folder)


_CHANGING = {
    r"\b20\d{15}\b": "<instant>",
    r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\d+)?": "<id>",
    r"\b\d+(\.\d+)? (ms|s|min|h)( \d+ (s|min|ms))?\b": "<time>",
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? UTC": "<time>",
    r"\bafter \d+ (attempts|tries|requests)": "after <n> \\1",
}


def _stable(text: str, folder: Path) -> str:
    text = text.replace(f"file://{folder}", "<dir>").replace(str(folder), "<dir>")
    for pattern, name in _CHANGING.items():
        if name != "<instant>" or EARLIEST not in text:
            text = re.sub(pattern, name, text)
    return text


def snapshot() -> Iterator[tuple[str, str]]:
    """Yield the name of each case and the output a user sees."""
    for name, case in CASES.items():
        yield name, shown(case)


def recorded() -> dict[str, str]:
    """Return the committed messages by case name."""
    parts = re.split(r"^## (.+)\n\n", SNAPSHOT.read_text(), flags=re.MULTILINE)
    return {name: body.strip("\n") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def write() -> None:
    """Rewrite the snapshot."""
    head = "Error messages as users see them. Rewritten by: python -m tests.cli.messages\n"
    body = "".join(f"\n## {name}\n\n{text}\n" for name, text in snapshot())
    SNAPSHOT.write_text(head + body)
    sys.stdout.write(f"{len(CASES)} messages written to {SNAPSHOT.name}\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write()
