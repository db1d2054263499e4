"""Stores opened from an address, in this process and in another."""

from __future__ import annotations

import multiprocessing
import pickle
from pathlib import Path

import pytest

from tidelock.core.errors import Unsupported
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Create
from tidelock.storage.uri import StoreAddress


def write_there(address: StoreAddress) -> None:
    """Write an object from another process."""
    assert isinstance(address.open().put("from/there", b"x", Create()), Landed)


def test_address_opens_its_store_once(tmp_path: Path) -> None:
    first = StoreAddress(str(tmp_path)).open()
    assert StoreAddress(str(tmp_path)).open() is first
    assert StoreAddress(str(tmp_path), {"tidelock.request.timeout.ms": 5}).open() is not first


def test_address_can_be_opened_in_another_process(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}")
    process = multiprocessing.get_context("spawn").Process(target=write_there, args=(address,))
    process.start()
    process.join(200)
    assert process.exitcode == 0
    assert address.open().head("from/there") is not None


def test_repr_of_an_address_shows_no_settings() -> None:
    address = StoreAddress("s3://lake/table", {"hoodie.aws.secret.key": "the-secret"})
    assert "the-secret" not in repr(address)
    assert pickle.loads(pickle.dumps(address)) == address


def test_invalid_address_is_refused() -> None:
    with pytest.raises(Unsupported, match="no store for the scheme"):
        StoreAddress("ftp://host/x").open()
