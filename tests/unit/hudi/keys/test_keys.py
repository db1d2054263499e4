"""Record keys and partition paths, as Hudi's key generators produce them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tidelock.core.errors import InvalidInput, Unsupported
from tidelock.hudi.keys import KeyRule, partition_paths, record_keys
from tidelock.hudi.properties import KeyGenerator, TableProperties, new_properties

SIMPLE = KeyRule(KeyGenerator.SIMPLE, ("id",), ("part",))
COMPLEX = KeyRule(KeyGenerator.COMPLEX, ("id", "name"), ("part", "day"))


def keys(rule: KeyRule, **columns: list[object]) -> list[str]:
    """Return the record keys of rows given by columns."""
    found: list[str] = record_keys(pa.table(columns), rule).to_pylist()
    return found


def paths(rule: KeyRule, **columns: list[object]) -> list[str]:
    """Return the partition paths of rows given by columns."""
    found: list[str] = partition_paths(pa.table(columns), rule).to_pylist()
    return found


def test_simple_key_is_the_plain_value() -> None:
    assert keys(SIMPLE, id=[7, 8]) == ["7", "8"]
    assert keys(SIMPLE, id=["a:b,c", "ü"]) == ["a:b,c", "ü"]


def test_complex_key_names_its_fields() -> None:
    assert keys(COMPLEX, id=[1, 2], name=["a", "b"]) == ["id:1,name:a", "id:2,name:b"]


def test_missing_part_of_a_complex_key_has_a_placeholder() -> None:
    found = keys(COMPLEX, id=[None, 2, 3], name=["a", "", None])
    assert found == ["id:__null__,name:a", "id:2,name:__empty__", "id:3,name:__null__"]


@pytest.mark.parametrize(("version", "expected"), [(8, "7"), (9, "id:7")])
def test_complex_key_with_one_field_names_it_since_version_9(version: int, expected: str) -> None:
    rule = KeyRule(KeyGenerator.COMPLEX, ("id",), ("part",), version)
    assert keys(rule, id=[7]) == [expected]


def test_non_partitioned_key_names_fields_only_if_there_are_several() -> None:
    assert keys(KeyRule(KeyGenerator.NON_PARTITION, ("id",)), id=[7]) == ["7"]
    rule = KeyRule(KeyGenerator.NON_PARTITION, ("id", "name"))
    assert keys(rule, id=[7], name=["x"]) == ["id:7,name:x"]


@pytest.mark.parametrize(
    "rule",
    [
        SIMPLE,
        KeyRule(KeyGenerator.NON_PARTITION, ("id",)),
        KeyRule(KeyGenerator.COMPLEX, ("id",), version=8),
        KeyRule(KeyGenerator.COMPLEX, ("id",), version=9),
    ],
)
@pytest.mark.parametrize("blank", [None, ""])
def test_null_key_is_reported_with_row_and_column(rule: KeyRule, blank: str | None) -> None:
    with pytest.raises(InvalidInput, match="row 2: the record key column 'id' is null or empty"):
        keys(rule, id=["a", "b", blank, None])


def test_complex_key_with_only_nulls_is_reported_with_row_and_columns() -> None:
    with pytest.raises(InvalidInput, match=r"row 1: .*\['id', 'name'\] are all null or empty"):
        keys(COMPLEX, id=[None, None], name=["a", ""])


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([True]), "true"),
        (pa.array([date(2024, 1, 31)]), "2024-01-31"),
        (pa.array([Decimal("-1.50")]), "-1.50"),
        (pa.array([Decimal("0.00000010")]), "1.0E-7"),
        (pa.array([-(2**63)]), "-9223372036854775808"),
        (
            pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp("ms", "UTC")),
            "1000000",
        ),
        (pa.array(["x"], pa.large_string()), "x"),
        (pa.array(["x"]).dictionary_encode(), "x"),
    ],
)
def test_text_of_a_value_matches_java(values: pa.Array, text: str) -> None:
    assert record_keys(pa.table({"id": values}), SIMPLE).to_pylist() == [text]


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.binary(), pa.list_(pa.int64())])
def test_type_whose_text_differs_between_languages_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInput, match=r"record key column 'id': "):
        record_keys(pa.table({"id": pa.array([None], kind)}), SIMPLE)


def test_missing_key_column_is_reported_with_the_existing_columns() -> None:
    with pytest.raises(InvalidInput, match=r"record key column 'id' does not exist.*ident, part"):
        keys(SIMPLE, ident=[1], part=["a"])


def test_key_can_be_inside_a_struct() -> None:
    rule = KeyRule(KeyGenerator.SIMPLE, ("who.id",))
    assert keys(rule, who=[{"id": 1}, {"id": 2}]) == ["1", "2"]
    with pytest.raises(InvalidInput, match="row 1"):
        keys(rule, who=[{"id": 1}, None])
    with pytest.raises(InvalidInput, match="who has no field id"):
        keys(rule, who=[{"name": 1}])


def test_keys_are_generated_across_chunks_and_for_no_rows() -> None:
    column = pa.chunked_array([[1, 2], [], [3]], pa.int64())
    assert record_keys(pa.table({"id": column}), SIMPLE).to_pylist() == ["1", "2", "3"]
    assert keys(SIMPLE, id=[]) == []


def test_table_without_key_fields_has_no_keys() -> None:
    with pytest.raises(InvalidInput, match="no record key"):
        keys(KeyRule(KeyGenerator.SIMPLE, ()), id=[1])


@pytest.mark.parametrize("generator", [KeyGenerator.CUSTOM, KeyGenerator.OTHER])
def test_unknown_key_generator_is_refused(generator: KeyGenerator) -> None:
    rule = KeyRule(generator, ("id",), ("part",))
    with pytest.raises(Unsupported, match="is not supported"):
        keys(rule, id=[1])
    with pytest.raises(Unsupported, match="is not supported"):
        paths(rule, part=[1])


def test_path_is_plain_or_hive_style() -> None:
    assert paths(SIMPLE, part=["a", "b"]) == ["a", "b"]
    hive = KeyRule(KeyGenerator.COMPLEX, ("id",), ("part", "day"), hive_style=True)
    found = paths(hive, part=["a", "b"], day=[date(2024, 1, 2), None])
    assert found == ["part=a/day=2024-01-02", "part=b/day=__HIVE_DEFAULT_PARTITION__"]


def test_null_partition_value_has_the_hive_default_folder() -> None:
    default = "__HIVE_DEFAULT_PARTITION__"
    assert paths(SIMPLE, part=["a", None, ""]) == ["a", default, default]


def test_slash_in_a_partition_value_is_refused_or_escaped() -> None:
    with pytest.raises(InvalidInput, match="partition field part: 'a/b'"):
        paths(SIMPLE, part=["ok", "a/b"])
    escaped = KeyRule(KeyGenerator.SIMPLE, ("id",), ("part",), url_encode=True)
    assert paths(escaped, part=["a/b"]) == ["a%2Fb"]


def test_table_without_partitions_has_one_empty_path() -> None:
    assert paths(KeyRule(KeyGenerator.NON_PARTITION, ("id",)), id=[1, 2]) == ["", ""]


def test_missing_partition_column_is_reported() -> None:
    with pytest.raises(InvalidInput, match="partition column 'part' does not exist"):
        paths(SIMPLE, id=[1])


def test_key_rule_is_read_from_the_table_properties() -> None:
    properties = new_properties(
        "t", record_keys=["a", "b"], partition_fields=["p"], hive_style=True, version=8
    )
    assert isinstance(properties, TableProperties)
    assert KeyRule.of(properties) == KeyRule(
        KeyGenerator.COMPLEX, ("a", "b"), ("p",), 8, hive_style=True
    )
