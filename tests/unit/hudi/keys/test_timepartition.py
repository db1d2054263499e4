"""Partition folders derived from times: numbers in every unit, texts in Joda's patterns, time
zones."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from tidelock.core.errors import ConfigInvalid, InvalidInput
from tidelock.hudi.keys import KeyRule, TimestampPartitions, partition_paths
from tidelock.hudi.properties import KeyGenerator

ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSZ"


def settings(kind: str, **values: str) -> TimestampPartitions:
    """Return folders by generator settings; `_` stands for a dot in their names."""
    named = {f"hoodie.keygen.timebased.{k.replace('_', '.')}": v for k, v in values.items()}
    named.setdefault("hoodie.keygen.timebased.output.dateformat", "yyyy/MM/dd/HH")
    return TimestampPartitions.of({"hoodie.keygen.timebased.timestamp.type": kind, **named})


def folders(
    time: TimestampPartitions, values: list[object], kind: pa.DataType | None = None
) -> list[str]:
    """Return the folder of each value."""
    found: list[str] = time.folders(pa.array(values, kind), "at").to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("UNIX_TIMESTAMP", 1705314600),
        ("EPOCHMILLISECONDS", 1705314600999),
        ("EPOCHMICROSECONDS", 1705314600999999),
    ],
)
def test_numbers_are_read_in_their_unit(kind: str, value: int) -> None:
    assert folders(settings(kind), [value]) == ["2024/01/15/10"]


def test_scalar_has_the_configured_unit() -> None:
    time = settings("SCALAR", timestamp_scalar_time_unit="days")
    assert folders(time, [19737]) == ["2024/01/15/00"]
    assert folders(time, [date(2024, 1, 15)]) == ["2024/01/15/00"]
    assert folders(settings("SCALAR"), [1705314600]) == ["2024/01/15/10"]


def test_times_before_1970_are_rounded_down() -> None:
    assert folders(settings("EPOCHMILLISECONDS"), [-1, -3_600_001]) == [
        "1969/12/31/23",
        "1969/12/31/22",
    ]


def test_timestamp_is_read_as_microseconds() -> None:
    when = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
    kind = pa.timestamp("ms", "UTC")
    assert folders(settings("EPOCHMICROSECONDS"), [when], kind) == ["2024/01/15/10"]


def test_null_goes_to_the_first_folder_of_1970() -> None:
    assert folders(settings("UNIX_TIMESTAMP"), [None], pa.int64()) == ["1970/01/01/00"]
    time = settings("DATE_STRING", input_dateformat=ISO)
    assert folders(time, [None], pa.string()) == ["1970/01/01/00"]


def test_text_keeps_the_wall_clock_of_its_own_offset() -> None:
    time = settings("DATE_STRING", input_dateformat=ISO)
    values: list[object] = ["2024-01-15T10:30:00.000Z", "2024-01-15T23:30:00.000-0800"]
    assert folders(time, values) == ["2024/01/15/10", "2024/01/15/23"]


def test_output_time_zone_shifts_the_wall_clock() -> None:
    time = settings("DATE_STRING", input_dateformat=ISO, output_timezone="UTC")
    assert folders(time, ["2024-01-15T23:30:00.000-08:00"]) == ["2024/01/16/07"]
    tokyo = settings("UNIX_TIMESTAMP", output_timezone="Asia/Tokyo")
    assert folders(tokyo, [1705314600]) == ["2024/01/15/19"]
    shifted = settings("UNIX_TIMESTAMP", timezone="GMT+8:00")
    assert folders(shifted, [1705314600]) == ["2024/01/15/18"]


def test_input_time_zone_applies_to_texts_without_one() -> None:
    time = settings(
        "DATE_STRING",
        input_dateformat="yyyy-MM-dd HH:mm:ss",
        input_timezone="America/New_York",
        output_timezone="UTC",
    )
    assert folders(time, ["2024-01-15 22:00:00", "2024-07-15 22:00:00"]) == [
        "2024/01/16/03",
        "2024/07/16/02",
    ]


def test_several_patterns_are_tried_in_turn() -> None:
    time = settings(
        "DATE_STRING", input_dateformat="yyyy-MM-dd, yyyyMMdd", output_dateformat="yyyyMM"
    )
    assert folders(time, ["2024-01-15", "20240216"]) == ["202401", "202402"]


def test_quoted_text_and_percent_signs_are_literal() -> None:
    time = settings("UNIX_TIMESTAMP", output_dateformat="'day='yyyy-MM-dd'%d''s'")
    assert folders(time, [1705314600]) == ["day=2024-01-15%d's"]


def test_text_that_matches_no_pattern_is_reported_with_its_row() -> None:
    time = settings("DATE_STRING", input_dateformat="yyyy-MM-dd")
    with pytest.raises(InvalidInput, match=r"row 1: .*'at'.*yyyy-MM-dd.*'15\.1\.2024'"):
        folders(time, ["2024-01-15", "15.1.2024"])


def test_invalid_calendar_day_is_refused() -> None:
    time = settings("DATE_STRING", input_dateformat="yyyy-MM-dd")
    with pytest.raises(InvalidInput, match="2024-02-30"):
        folders(time, ["2024-02-30"])


@pytest.mark.parametrize("pattern", ["yyyy/M", "EEE", "w"])
def test_unsupported_pattern_letters_are_reported(pattern: str) -> None:
    with pytest.raises(ConfigInvalid, match="unsupported field"):
        folders(settings("UNIX_TIMESTAMP", output_dateformat=pattern), [1])


def test_unclosed_quote_in_a_pattern_is_reported() -> None:
    with pytest.raises(ConfigInvalid, match="unclosed quote"):
        folders(settings("UNIX_TIMESTAMP", output_dateformat="'day"), [1])


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP"}, "output.dateformat"),
        ({"hoodie.keygen.timebased.output.dateformat": "yyyy"}, "timestamp.type"),
    ],
)
def test_missing_setting_is_reported(values: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigInvalid, match=missing):
        TimestampPartitions.of(values)


@pytest.mark.parametrize(("kind", "unit"), [("NOON", ""), ("SCALAR", "weeks")])
def test_unknown_type_or_unit_is_refused(kind: str, unit: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"timestamp\.type"):
        settings(kind, timestamp_scalar_time_unit=unit)


def test_mismatched_values_and_settings_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="unit of numeric times is not set"):
        folders(settings("DATE_STRING", input_dateformat="yyyy"), [1])
    with pytest.raises(ConfigInvalid, match=r"input\.dateformat"):
        folders(settings("UNIX_TIMESTAMP"), ["2024"])
    with pytest.raises(InvalidInput, match="expected a time"):
        folders(settings("UNIX_TIMESTAMP"), [True])


def test_older_setting_names_of_the_streamer_are_accepted() -> None:
    old = "hoodie.deltastreamer.keygen.timebased."
    time = TimestampPartitions.of(
        {f"{old}timestamp.type": "UNIX_TIMESTAMP", f"{old}output.dateformat": "yyyy"}
    )
    assert folders(time, [0]) == ["1970"]


def test_time_folders_are_partition_paths_with_slashes() -> None:
    time = settings("UNIX_TIMESTAMP")
    plain = KeyRule(KeyGenerator.TIMESTAMP, ("id",), ("at",), time=time)
    rows = pa.table({"at": [1705314600]})
    assert partition_paths(rows, plain).to_pylist() == ["2024/01/15/10"]
    hive = KeyRule(KeyGenerator.TIMESTAMP, ("id",), ("at",), hive_style=True, time=time)
    assert partition_paths(rows, hive).to_pylist() == ["at=2024/01/15/10"]
