"""Names of data files are parsed and formatted as in Hudi."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import InvalidInput
from tidelock.hudi.file_groups import (
    CDC_SUFFIX,
    BaseFile,
    LogFile,
    WriteToken,
    base_name,
    data_file,
    file_id,
    log_name,
    parse_token,
)

GROUPS = st.from_regex(r"[0-9a-zA-Z-]{1,40}", fullmatch=True)
TIMES = st.from_regex(r"[0-9]{17}|[0-9]{14}", fullmatch=True)
NUMBERS = st.integers(0, 10**9)
TOKENS = st.builds(WriteToken, NUMBERS, NUMBERS, NUMBERS)


def test_base_file_name_of_a_real_table_is_parsed() -> None:
    name = "2746610d-ad02-4adb-a038-5cbb99cbd455-0_0-75-100_20250713010536861.parquet"
    group = "2746610d-ad02-4adb-a038-5cbb99cbd455-0"
    expected = BaseFile("byteField=10", name, group, "0-75-100", "20250713010536861", 9)
    assert data_file("byteField=10", name, 9) == expected
    assert expected.key == f"byteField=10/{name}"


def test_log_file_name_of_a_real_table_is_parsed() -> None:
    name = ".8aa68f7e-afd6-4c94-b86c-8a886552e08d-0_20251220210130911.log.1_0-1139-3316"
    group = "8aa68f7e-afd6-4c94-b86c-8a886552e08d-0"
    expected = LogFile("", name, group, "0-1139-3316", "20251220210130911", 1, 7)
    assert data_file("", name, 7) == expected


def test_log_file_can_lack_a_write_token() -> None:
    found = data_file("", ".a_20251220210130911.log.3", 0)
    assert isinstance(found, LogFile)
    assert (found.version, found.write_token) == (3, "")


@pytest.mark.parametrize(
    "name",
    [
        "_SUCCESS",
        "part-00000.parquet",
        "a_0-1-1_20250713010536861.parquet.crc",
        ".a_0-1-1_20250713010536861.parquet",
        "a_0-1-1_20250713010536861.orc",
        "a_b_0-1-1_20250713010536861.parquet",
        "a_0-1-1_now.parquet",
        ".hoodie_partition_metadata",
        ".a_20250713010536861.log.1_abc123",
        ".a_20250713010536861.log.x_0-1-1",
        ".a.b_20250713010536861.log.1_0-1-1",
        ".a_20250713010536861.log.1_0-1-1.tmp",
        ".a_20250713010536861.archive.1_0-1-1",
        "a_20250713010536861.log.1_0-1-1",
    ],
)
def test_foreign_name_is_ignored(name: str) -> None:
    assert data_file("part", name, 1) is None


@given(GROUPS, TOKENS, TIMES)
def test_base_names_round_trip(group: str, token: WriteToken, instant: str) -> None:
    name = base_name(group, token, instant)
    assert data_file("p", name, 5) == BaseFile("p", name, group, str(token), instant, 5)
    assert parse_token(str(token)) == token


@given(GROUPS, TOKENS, TIMES, st.integers(1, 10**6), st.sampled_from(["", CDC_SUFFIX]))
def test_log_names_round_trip(
    group: str, token: WriteToken, instant: str, version: int, suffix: str
) -> None:
    name = log_name(group, instant, token, version=version, suffix=suffix)
    expected = LogFile("", name, group, str(token), instant, version, 5, suffix)
    assert data_file("", name, 5) == expected


@given(st.text(max_size=60))
def test_any_name_is_parsed_or_ignored(name: str) -> None:
    found = data_file("", name, 1)
    assert found is None or found.name == name


def test_file_id_is_a_prefix_and_a_number() -> None:
    assert file_id("2746610d-ad02-4adb-a038-5cbb99cbd455") == (
        "2746610d-ad02-4adb-a038-5cbb99cbd455-0"
    )


@pytest.mark.parametrize("group", ["", "a_b", "a.b", "a/b", "a\n"])
def test_unparsable_file_id_is_refused(group: str) -> None:
    with pytest.raises(InvalidInput, match="file id"):
        base_name(group, WriteToken(0, 1, 1), "20250713010536861")


def test_name_with_an_impossible_time_or_version_is_refused() -> None:
    token = WriteToken(0, 1, 1)
    with pytest.raises(InvalidInput, match="request time"):
        base_name("a", token, "today")
    with pytest.raises(InvalidInput, match="version 0"):
        log_name("a", "20250713010536861", token, version=0)
    with pytest.raises(InvalidInput, match=r"\.tmp"):
        log_name("a", "20250713010536861", token, suffix=".tmp")


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "a-b-c", "1_2_3"])
def test_write_token_is_three_numbers(text: str) -> None:
    assert parse_token(text) is None
