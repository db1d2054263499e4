"""From a URI to a store: one spelling per resource, confined to it (L13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelock.core.errors import InvalidInput, ResourceInvalid, Unsupported
from tidelock.core.limits import RESOURCE_BYTES_MAX
from tidelock.storage.local import LocalStore
from tidelock.storage.memory import MemoryStore
from tidelock.storage.uri import canonical, checked_key, checked_prefix, is_key, open_store, shown


@pytest.mark.parametrize(
    ("uri", "spelling"),
    [
        ("s3://lake/orders", "s3://lake/orders"),
        ("s3a://lake/orders", "s3://lake/orders"),
        ("S3://lake/orders/", "s3://lake/orders"),
        ("s3://lake/orders///", "s3://lake/orders"),
        ("s3://lake/a%20b", "s3://lake/a b"),
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("gs://lake/orders", "gs://lake/orders"),
        ("file:///data/orders", "file:///data/orders"),
        ("file://localhost/data/orders/", "file:///data/orders"),
        ("/data/orders", "file:///data/orders"),
        ("/data/./orders/", "file:///data/orders"),
        ("memory://lake/orders", "memory://lake/orders"),
    ],
)
def test_resource_has_one_spelling(uri: str, spelling: str) -> None:
    assert canonical(uri) == spelling
    assert canonical(spelling.replace(" ", "%20")) == spelling


def test_plain_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical("orders") == f"file://{tmp_path}/orders"


BAD = [
    "",
    " ",
    " s3://lake/x",
    "s3://lake/../x",
    "s3://lake/a/%2e%2e/b",
    "s3://lake/a//b",
    "s3://lake/./a",
    "s3:///orders",
    "s3://lake/a?b",
    "s3://lake/a#b",
    "s3://lake/a\0b",
    "s3://lake/a%00b",
    "s3://lake/a%0ab",
    "s3://lake/" + "a" * (RESOURCE_BYTES_MAX + 1),
    "s3://lake/" + "é" * (RESOURCE_BYTES_MAX // 2 + 1),
    "s3://lake/" + "a" * 10_000,
    "file://host/data",
    "file://",
    "/data/../etc",
    "/data//orders",
    "/data/\x07",
    "/data/" + "a" * 256,
    "/" + "a/" * 600,
    "a\0b",
]


@pytest.mark.parametrize("uri", BAD, ids=[ascii(uri)[:30] for uri in BAD])
def test_invalid_resource_is_refused_with_a_short_message(uri: str) -> None:
    for use in (canonical, open_store):
        with pytest.raises(ResourceInvalid) as raised:
            use(uri)
        assert len(str(raised.value)) < 400
        assert "\0" not in str(raised.value)


def test_azure_resource_needs_container_and_account() -> None:
    with pytest.raises(ResourceInvalid, match="container@account-host"):
        open_store("abfss://lake/orders")


@pytest.mark.parametrize("uri", ["hdfs://lake/orders", "http://lake/orders", "ftp://x/y"])
def test_unsupported_scheme_is_reported_with_the_supported_ones(uri: str) -> None:
    with pytest.raises(Unsupported, match="s3") as raised:
        open_store(uri)
    assert "file" in raised.value.hint


def test_each_scheme_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store(f"file://{tmp_path}"), LocalStore)
    assert isinstance(open_store("memory://lake/orders"), MemoryStore)


def test_two_spellings_of_one_folder_are_one_store(tmp_path: Path) -> None:
    assert open_store(f"{tmp_path}/").uri == open_store(f"file://{tmp_path}").uri


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a\nb", "\ud800"])
def test_invalid_key_is_refused(key: str) -> None:
    assert not is_key(key)
    with pytest.raises(InvalidInput, match="not a key"):
        checked_key(key)


@pytest.mark.parametrize("key", ["a", "a/b", ".hidden", "a..b", "...", "a b", "é/ü"])
def test_valid_key_is_unchanged(key: str) -> None:
    assert is_key(key)
    assert checked_key(key) == key


def test_prefix_can_be_empty_or_end_with_a_slash() -> None:
    assert checked_prefix("") == ""
    assert checked_prefix("a/") == "a/"
    for prefix in ("/", "a//", "../"):
        with pytest.raises(InvalidInput, match="not a prefix"):
            checked_prefix(prefix)


def test_long_name_is_shortened_in_messages() -> None:
    assert len(shown("x" * 10_000)) < 150
    assert "10000 characters" in shown("x" * 10_000)
