"""Uploads of the local store: files on disk during an upload and after a failure."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelock.core.errors import InvalidInput, StoreUnreachable
from tidelock.core.outcome import Landed
from tidelock.storage.contract import Refused, Unclear
from tidelock.storage.local import LocalStore


def files(root: Path) -> list[str]:
    """Return every file below a folder."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_temporary_file_is_next_to_the_object_until_the_end(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.upload("a/b/data") as upload:
        upload.write(b"half")
        (name,) = files(tmp_path)
        assert upload.path == str(tmp_path / name)
        assert name.startswith("a/b/.tidelock-")
        upload.write(b" and half")
        assert isinstance(upload.finish(), Landed)
        assert files(tmp_path) == ["a/b/data"]
    assert (tmp_path / "a/b/data").read_bytes() == b"half and half"


def test_refused_upload_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"first")
    with LocalStore(tmp_path).upload("data") as upload:
        upload.write(b"second")
        assert upload.finish() == Refused()
    assert files(tmp_path) == ["data"]
    assert (tmp_path / "data").read_bytes() == b"first"


def test_symlink_in_the_path_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").write_bytes(b"x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(outside)
    (root / "data").symlink_to(outside / "data")
    store = LocalStore(root)
    with pytest.raises(InvalidInput, match="link"):
        store.upload("linked/other")
    with pytest.raises(InvalidInput, match="link"):
        store.local_path("linked/data")
    with pytest.raises(InvalidInput, match="link"):
        store.local_path("data")
    assert files(outside) == ["data"]


def test_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    upload = LocalStore(tmp_path).upload("data")
    monkeypatch.setattr(os, "write", full)
    with upload, pytest.raises(StoreUnreachable, match="free some space"):
        upload.write(b"x")
    assert files(tmp_path) == []


def failing_sync(on_call: int) -> Callable[[int], None]:
    """Return an fsync whose n-th call fails."""
    calls = 0

    def sync(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == on_call:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    return sync


def test_disk_failure_before_naming_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = LocalStore(tmp_path).upload("data")
    upload.write(b"x")
    monkeypatch.setattr(os, "fsync", failing_sync(1))
    with upload, pytest.raises(StoreUnreachable, match="nothing was written"):
        upload.finish()
    assert files(tmp_path) == []


def test_disk_failure_after_naming_is_unclear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = LocalStore(tmp_path).upload("data")
    upload.write(b"x")
    monkeypatch.setattr(os, "fsync", failing_sync(2))
    with upload:
        assert isinstance(upload.finish(), Unclear)
    assert files(tmp_path) == ["data"]
