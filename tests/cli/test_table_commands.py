"""`table describe`, `history`, `files`, `show`, and `timeline show`, on tables in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.program import Ended, Program
from tests.interop.real_tables import NAMES, unpacked
from tests.unit.execution.filegroup.slices import parquet
from tests.unit.hudi.table_builder import base, time
from tests.unit.operations.small_tables import Filled, schema_json, two_writes
from tidelock.hudi.schema import META_COLUMNS, with_meta

COMMANDS = (
    ("table", "describe"),
    ("table", "history"),
    ("table", "files"),
    ("table", "show"),
    ("timeline", "show"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a table with two writes and a pending one."""
    table = two_writes()
    table.pending(5)
    return table.copy_to(tmp_path / "built")


def rows(ended: Ended) -> list[dict[str, object]]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_describe_shows_the_table_properties(tidelock: Program, folder: Path) -> None:
    shown = tidelock("table", "describe", str(folder), "--json").facts
    assert shown["name"] == "built"
    assert shown["uri"] == f"file://{folder}"
    assert (shown["type"], shown["version"]) == ("MERGE_ON_READ", 9)
    assert (shown["record_keys"], shown["partition_fields"]) == (["id"], ["part"])
    assert (shown["last_completion"], shown["pending_actions"]) == (time(4), 1)
    assert (shown["file_groups"], shown["base_files"], shown["log_files"]) == (1, 1, 1)
    assert shown["columns"][1] == {"name": "ts", "type": "int64"}
    output = tidelock("table", "describe", str(folder)).out
    assert "MERGE_ON_READ" in output
    assert "name    string" in output


def test_history_is_newest_first_and_limited(tidelock: Program, folder: Path) -> None:
    shown = tidelock("table", "history", str(folder), "--json").facts["history"]
    assert [entry["requested"] for entry in shown] == [time(3), time(1)]
    assert [entry["action"] for entry in shown] == ["deltacommit", "commit"]
    output = tidelock("table", "history", str(folder), "--limit", "1").out.splitlines()
    assert [line.split()[0] for line in output] == ["completed", time(4)]


def test_files_are_listed_by_file_group(tidelock: Program, folder: Path) -> None:
    (shown,) = tidelock("table", "files", str(folder), "--json").facts["files"]
    assert (shown["partition"], shown["file_id"], len(shown["logs"])) == ("p", "g-0", 1)
    on_disk = folder / "p" / shown["base"]["name"]
    assert shown["base"]["size_bytes"] == on_disk.stat().st_size
    output = tidelock("table", "files", str(folder)).out
    assert shown["base"]["name"] in output
    refused = tidelock("table", "files", str(folder), "--partition", "q")
    assert refused.code == 2
    assert "has no partition 'q'" in refused.err
    assert "its 1 partitions are: p" in refused.err


def test_show_reads_the_latest_and_earlier_snapshots(tidelock: Program, folder: Path) -> None:
    now = rows(tidelock("table", "show", str(folder), "--json"))
    assert sorted(str(row["name"]) for row in now) == ["Ann", "Ben", "Cid"]
    then = rows(tidelock("table", "show", str(folder), "--as-of", time(1), "--json"))
    assert [row["name"] for row in then] == ["Ann", "Bob", "Cid"]
    assert then[0] == {"id": "a", "ts": 1, "name": "Ann"}
    before = tidelock("table", "show", str(folder), "--as-of", "2020-01-01T00:00:00Z")
    assert (before.code, before.out) == (0, f"file://{folder}: no rows\n")


def test_show_honours_columns_and_limit(tidelock: Program, folder: Path) -> None:
    ended = tidelock("table", "show", str(folder), "--columns", "name, id", "--limit", "2")
    assert [line.split() for line in ended.out.splitlines()] == [
        ["name", "id"],
        ["Ann", "a"],
        ["Cid", "c"],
    ]
    assert "only the first 2 rows" in ended.err
    (row, *_) = rows(tidelock("table", "show", str(folder), "--meta", "--json"))
    assert list(row) == [*META_COLUMNS, "id", "ts", "name"]


def test_values_cannot_break_json_or_the_terminal(tidelock: Program, tmp_path: Path) -> None:
    text = "\x1b[31mred\n" + "x" * 100
    values = {"text": [text], "real": [float("nan")], "raw": [b"\x00\xff"]}
    user = pa.table(values)
    table = Filled(partitioned=False)
    key = base("g-0", 1, "")
    table.commit(1, 2, [key], schema=schema_json(user.schema))
    meta = {name: ["x"] for name in META_COLUMNS}
    table.put(key, parquet(pa.table({**meta, **values}, schema=with_meta(user.schema))))
    folder = table.copy_to(tmp_path / "odd")
    (row,) = rows(tidelock("table", "show", str(folder), "--json"))
    assert row == {"text": text, "real": "nan", "raw": "00ff"}
    output = tidelock("table", "show", str(folder)).out
    assert "\x1b" not in output
    assert r"\x1b[31mred\n" in output
    assert "…" in output
    assert len(output.splitlines()) == 2


def test_timeline_shows_pending_instants(tidelock: Program, folder: Path) -> None:
    shown = tidelock("timeline", "show", str(folder), "--json").facts["instants"]
    assert [(each["requested"], each["state"]) for each in shown] == [
        (time(1), "completed"),
        (time(3), "completed"),
        (time(5), "inflight"),
    ]
    assert shown[2]["completion"] is None
    assert "3 actions, 1 pending" in tidelock("timeline", "show", str(folder)).out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_folder_without_a_table_is_an_error_with_a_hint(
    tidelock: Program, tmp_path: Path, command: tuple[str, str]
) -> None:
    ended = tidelock(*command, str(tmp_path))
    assert ended.code == 8
    assert f"{tmp_path} is not a Hudi table: .hoodie/hoodie.properties does not exist" in ended.err
    assert "base path" in ended.err
    assert tidelock(*command, str(tmp_path), "--json").facts["error"]["kind"] == "not_found"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--columns", "nmae"], "did you mean 'name'?"),
        (["--as-of", "yesterday"], "14 or 17 digits"),
        (["--limit", "0"], "--limit"),
        (["--prop", "tidelock.store.request.timeuot.ms=1"], "did you mean"),
    ],
)
def test_usage_error_of_show_is_explained(
    tidelock: Program, folder: Path, args: list[str], says: str
) -> None:
    ended = tidelock("table", "show", str(folder), *args)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_corrupt_base_file_is_reported(tidelock: Program, folder: Path) -> None:
    (path,) = folder.glob("p/*.parquet")
    path.write_bytes(b"PAR1")
    ended = tidelock("table", "show", str(folder))
    assert ended.code == 7
    assert path.name in ended.err


@pytest.mark.parametrize("name", NAMES)
def test_every_command_works_on_a_table_written_by_java(
    tidelock: Program, tmp_path: Path, name: str
) -> None:
    base_path = str(unpacked(name, tmp_path))
    for command in COMMANDS:
        ended = tidelock(*command, base_path)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out
        assert rows(tidelock(*command, base_path, "--json"))
