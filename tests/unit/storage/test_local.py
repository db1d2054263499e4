"""The local store: complete objects, compare-and-swap across processes, confined to its root."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.unit.doubles import ManualClock
from tidelock.core.errors import (
    InvalidInput,
    PermissionDenied,
    StoreUnreachable,
    TidelockError,
    Unsupported,
)
from tidelock.core.limits import FLOCK_WAIT_MS, TEMP_AGE_MS
from tidelock.core.outcome import Landed, Unknown
from tidelock.core.system import SystemClock, SystemIds
from tidelock.storage.conditional import ReadbackPolicy, put_and_verify
from tidelock.storage.contract import Create, Match, Overwrite, PutMode, Refused, Unclear
from tidelock.storage.local import LocalStore

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root, fsync=False)


def put(store: LocalStore, key: str, body: bytes, mode: PutMode | None = None) -> str:
    reply = store.put(key, body, mode or Overwrite())
    assert isinstance(reply, Landed), reply
    return reply.version


def body_of(store: LocalStore, key: str) -> bytes:
    found = store.get(key)
    assert found is not None
    return found.body


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.rglob(".tidelock-*")]


def joined(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.join(200)
        assert process.exitcode == 0


# Between processes


def increment(root: str, times: int) -> None:
    store = LocalStore(Path(root), fsync=False)
    for _ in range(times):
        while True:
            found = store.get("counter")
            assert found is not None
            value = str(int(found.body) + 1).encode()
            if isinstance(store.put("counter", value, Match(found.version)), Landed):
                break


def test_counter_incremented_by_four_processes_loses_no_increment(
    root: Path, store: LocalStore
) -> None:
    put(store, "counter", b"0")
    processes = [SPAWN.Process(target=increment, args=(str(root), 200)) for _ in range(4)]
    for process in processes:
        process.start()
    joined(list(processes))
    assert body_of(store, "counter") == b"800"
    assert leftovers(root) == []


def replace_for_ever(root: str, letter: str) -> None:
    store = LocalStore(Path(root), fsync=False)
    size = 200_000 if letter in "ac" else 70_000
    while True:
        store.put("object", letter.encode() * size, Overwrite())


def test_reader_never_sees_a_partial_object_while_processes_replace_it(
    root: Path, store: LocalStore
) -> None:
    put(store, "object", b"z" * 10)
    writers = [SPAWN.Process(target=replace_for_ever, args=(str(root), it)) for it in "abc"]
    for writer in writers:
        writer.start()
    seen: set[bytes] = set()
    reads = 0
    try:
        until = time.monotonic() + 60
        while not (seen >= {b"a", b"b", b"c"} and reads > 1_500) and time.monotonic() < until:
            body = body_of(store, "object")
            reads += 1
            assert body == body[:1] * len(body)
            assert len(body) in (10, 70_000, 200_000)
            seen.add(body[:1])
    finally:
        for writer in writers:
            writer.kill()
            writer.join(60)
    assert seen >= {b"a", b"b", b"c"}


CREATE_RACE = """
import sys
from pathlib import Path
from tidelock.storage.local import LocalStore
from tidelock.storage.contract import Create
from tidelock.core.outcome import Landed
store = LocalStore(Path(sys.argv[1]), fsync=False)
sys.stdin.readline()
replies = [store.put(f"key/{n}", sys.argv[2].encode(), Create()) for n in range(100)]
print(sum(isinstance(reply, Landed) for reply in replies))
"""


def test_each_name_is_created_by_one_process(root: Path, store: LocalStore) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", CREATE_RACE, str(root), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [int(racer.communicate(timeout=200)[0]) for racer in racers]
    assert sum(wins) == 100
    assert len(list(store.list("key/"))) == 100


# Confinement to the root


@pytest.mark.parametrize(
    "key",
    [
        "../x",
        "a/../x",
        "..",
        "/etc/passwd",
        "a//b",
        "a/",
        "",
        ".",
        "a/./b",
        "a\0b",
        "a\nb",
        "\ud800",
    ],
)
def test_escaping_key_is_refused(store: LocalStore, root: Path, key: str) -> None:
    for verb in (
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.put(key, b"x", Overwrite()),
        lambda: store.delete(key),
    ):
        with pytest.raises(InvalidInput):
            verb()
    assert not root.exists()


def test_symlinked_folder_is_refused_by_every_verb(
    store: LocalStore, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root.mkdir()
    (root / "link").symlink_to(outside)
    for verb in (
        lambda: store.get("link/secret"),
        lambda: store.head("link/secret"),
        lambda: store.put("link/new", b"x", Overwrite()),
        lambda: store.put("link/new", b"x", Create()),
        lambda: store.delete("link/secret"),
        lambda: list(store.list("link/")),
    ):
        with pytest.raises(InvalidInput, match="link"):
            verb()
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert list(store.list("")) == []


def test_symlinked_object_is_never_read_or_written_through(
    store: LocalStore, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    root.mkdir()
    (root / "object").symlink_to(secret)
    with pytest.raises(InvalidInput):
        store.get("object")
    with pytest.raises(InvalidInput):
        store.head("object")
    assert store.put("object", b"x", Create()) == Refused()
    assert list(store.list("")) == []
    put(store, "object", b"mine", Overwrite())
    assert secret.read_bytes() == b"secret"
    assert body_of(store, "object") == b"mine"


def test_root_can_be_a_symlink(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "root").symlink_to(real)
    store = LocalStore(tmp_path / "root", fsync=False)
    put(store, "a/b", b"x")
    assert (real / "a" / "b").read_bytes() == b"x"


@pytest.mark.parametrize("verb", ["get", "head"])
def test_folder_is_not_an_object(store: LocalStore, verb: str) -> None:
    put(store, "folder/object", b"x")
    with pytest.raises(InvalidInput, match="folder"):
        getattr(store, verb)("folder")


@pytest.mark.timeout(120)
def test_named_pipe_in_place_of_an_object_does_not_block_a_reader(
    store: LocalStore, root: Path
) -> None:
    root.mkdir()
    os.mkfifo(root / "object")
    with pytest.raises(InvalidInput):
        store.get("object")
    with pytest.raises(InvalidInput):
        store.head("object")


# Temporary files and listings


def test_temporary_files_are_not_objects(store: LocalStore, root: Path) -> None:
    root.mkdir()
    (root / ".tidelock-young.tmp").write_bytes(b"half")
    put(store, "object", b"x")
    assert [meta.key for meta in store.list("")] == ["object"]
    assert (root / ".tidelock-young.tmp").exists()


def test_old_temporary_files_are_deleted(root: Path) -> None:
    clock = ManualClock()
    store = LocalStore(root, fsync=False, clock=clock)
    put(store, "object", b"x")
    temp = root / ".tidelock-old.tmp"
    temp.write_bytes(b"half")
    written_s = clock.now().wall_epoch_ms / 1000
    os.utime(temp, (written_s, written_s))
    clock.advance(TEMP_AGE_MS - 1_000)
    assert [meta.key for meta in store.list("")] == ["object"]
    assert temp.exists()
    clock.advance(2_000)
    assert [meta.key for meta in store.list("")] == ["object"]
    assert not temp.exists()


def test_key_named_like_a_temporary_file_is_refused(store: LocalStore) -> None:
    # A listing would not show it and would delete it an hour later.
    with pytest.raises(InvalidInput, match="temporary"):
        store.put("a/.tidelock-x.tmp", b"x", Create())


def test_listing_is_in_byte_order_across_folders(store: LocalStore) -> None:
    keys = ["a-b", "a/b", "a/c/d", "a.b", "a0", "a", "b", "ab", "é", "z", "a/c-d"]
    for key in keys:
        if key != "a":
            put(store, key, b"x")
    expected = sorted((key for key in keys if key != "a"), key=str.encode)
    assert expected.index("a-b") < expected.index("a/b") < expected.index("a0")
    assert [meta.key for meta in store.list("")] == expected
    for position, key in enumerate(expected):
        after = [meta.key for meta in store.list("", start_after=key)]
        assert after == expected[position + 1 :]


def test_listing_skips_names_that_no_key_can_have(store: LocalStore, root: Path) -> None:
    put(store, "good", b"x")
    (root / os.fsdecode(b"bad-\xff")).write_bytes(b"x")
    (root / "bad\nline").write_bytes(b"x")
    bad_folder = root / os.fsdecode(b"bad-\xfe")
    bad_folder.mkdir()
    (bad_folder / "inside").write_bytes(b"x")
    assert [meta.key for meta in store.list("")] == ["good"]


# Versions


def test_every_write_has_its_own_version_even_when_the_clock_stands_still(root: Path) -> None:
    store = LocalStore(root, fsync=False, clock=ManualClock())
    versions = {put(store, "object", b"same") for _ in range(200)}
    assert len(versions) == 200


def test_version_survives_a_wall_clock_step_back(root: Path) -> None:
    clock = ManualClock()
    store = LocalStore(root, fsync=False, clock=clock)
    first = put(store, "object", b"1")
    clock.wall_offset_ms = -3_600_000
    second = put(store, "object", b"2", Match(first))
    assert store.put("object", b"3", Match(first)) == Refused()
    third = put(store, "object", b"3", Match(second))
    assert len({first, second, third}) == 3


# Disk failures


def failing_call(
    monkeypatch: pytest.MonkeyPatch, name: str, error: int, *, when: Callable[..., bool]
) -> None:
    real = getattr(os, name)

    def broken(*arguments: object, **options: object) -> object:
        if when(*arguments, **options):
            raise OSError(error, os.strerror(error))
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, broken)


def always(*arguments: object, **options: object) -> bool:
    return True


def is_folder(handle: int) -> bool:
    return Path(f"/proc/self/fd/{handle}").is_dir()


def is_file(handle: int) -> bool:
    return not is_folder(handle)


def makes_a_file(*arguments: object, **options: object) -> bool:
    return len(arguments) > 1 and bool(int(str(arguments[1])) & os.O_CREAT)


Fault = tuple[str, int, Callable[..., bool], type[TidelockError]]
FAULTS: list[Fault] = [
    ("open", errno.EROFS, makes_a_file, PermissionDenied),
    ("open", errno.EACCES, makes_a_file, PermissionDenied),
    ("write", errno.ENOSPC, always, StoreUnreachable),
    ("write", errno.EDQUOT, always, StoreUnreachable),
    ("write", errno.EIO, always, StoreUnreachable),
    ("utime", errno.EPERM, always, PermissionDenied),
    ("fsync", errno.EIO, is_file, StoreUnreachable),
    ("fsync", errno.ENOSPC, is_file, StoreUnreachable),
    ("rename", errno.ENOSPC, always, StoreUnreachable),
    ("rename", errno.EROFS, always, PermissionDenied),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0]}-{fault[1]}")
def test_failed_write_is_reported_and_leaves_the_old_object(
    root: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    call, code, when, error = fault
    store = LocalStore(root)
    version = put(store, "a/object", b"old")
    with monkeypatch.context() as patch:
        failing_call(patch, call, code, when=when)
        with pytest.raises(error, match="a/object") as raised:
            store.put("a/object", b"new", Match(version))
        assert raised.value.hint
    assert body_of(store, "a/object") == b"old"
    assert leftovers(root) == []
    put(store, "a/object", b"new", Match(version))


@pytest.mark.parametrize("mode", [Create(), Overwrite()])
def test_possibly_non_durable_name_is_an_unclear_write(
    root: Path, monkeypatch: pytest.MonkeyPatch, mode: PutMode
) -> None:
    store = LocalStore(root)
    put(store, "a/other", b"x")
    with monkeypatch.context() as patch:
        failing_call(patch, "fsync", errno.EIO, when=is_folder)
        reply = store.put("a/object", b"new", mode)
    assert isinstance(reply, Unclear)
    assert reply.volatile
    assert "a/object" in reply.cause
    assert body_of(store, "a/object") == b"new"


def test_possibly_non_durable_name_is_not_read_back_as_landed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    put(store, "a/other", b"x")
    with monkeypatch.context() as patch:
        failing_call(patch, "fsync", errno.EIO, when=is_folder)
        outcome = put_and_verify(
            store, "a/object", b"mine", Create(), policy=ReadbackPolicy(SystemClock(), SystemIds())
        )
    assert isinstance(outcome, Unknown)
    assert "a/object" in outcome.cause


def test_folder_with_a_possibly_non_durable_name_is_created_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    put(store, "other", b"x")
    with monkeypatch.context() as patch:
        failing_call(patch, "fsync", errno.EIO, when=is_folder)
        with pytest.raises(StoreUnreachable):
            store.put("new/object", b"x", Create())
    assert not (root / "new").exists()


def test_every_parent_folder_of_an_object_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    real = os.fsync

    def noting(handle: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{handle}").readlink()))
        real(handle)

    monkeypatch.setattr(os, "fsync", noting)
    put(LocalStore(tmp_path / "lake" / "root"), "a/b/object", b"x")
    folders = ["", "lake", "lake/root", "lake/root/a", "lake/root/a/b"]
    assert {str(tmp_path / folder) for folder in folders} <= synced


@pytest.mark.parametrize(("call", "mode"), [("link", Create()), ("rename", Overwrite())])
def test_io_error_while_naming_is_an_unclear_write(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, mode: PutMode
) -> None:
    store = LocalStore(root)
    with monkeypatch.context() as patch:
        failing_call(patch, call, errno.EIO, when=always)
        assert isinstance(store.put("object", b"new", mode), Unclear)
    assert leftovers(root) == []


def test_filesystem_without_file_locks_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    put(store, "object", b"old", Create())

    def no_locks(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(Unsupported, match="object"):
        store.put("object", b"new", Overwrite())
    assert body_of(store, "object") == b"old"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a filesystem of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tidelock-test", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode != 0:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_loses_nothing_and_works_again_with_space(tiny_disk: Path) -> None:
    store = LocalStore(tiny_disk / "root")
    version = put(store, "object", b"old")
    ballast = tiny_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * 100_000)
    with pytest.raises(StoreUnreachable, match="No space left") as raised:
        store.put("object", b"n" * 20_000, Match(version))
    assert "space" in raised.value.hint
    assert body_of(store, "object") == b"old"
    assert leftovers(tiny_disk) == []
    ballast.unlink()
    put(store, "object", b"n" * 20_000, Match(version))


# File locks


STOPPED_IN_TURN = """
import os, signal, sys
from pathlib import Path
from tidelock.storage.local import LocalStore
from tidelock.storage.contract import Overwrite
real = os.rename
def stopped(*arguments, **options):
    print("inside", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return real(*arguments, **options)
os.rename = stopped
LocalStore(Path(sys.argv[1]), fsync=False).put("object", b"late", Overwrite())
"""


def test_writer_stopped_while_locked_causes_an_error_and_not_a_hang(root: Path) -> None:
    clock = ManualClock()
    store = LocalStore(root, fsync=False, clock=clock)
    version = put(store, "object", b"old")
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPED_IN_TURN, str(root)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert stopped.stdout is not None
        assert stopped.stdout.readline() == "inside\n"
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        began_ms = clock.now().monotonic_ms
        with pytest.raises(StoreUnreachable, match="object") as raised:
            store.put("object", b"new", Match(version))
        assert "suspended" in raised.value.hint
        waited_ms = clock.now().monotonic_ms - began_ms
        assert FLOCK_WAIT_MS <= waited_ms <= FLOCK_WAIT_MS + 100
        # Readers, and creates of other names, need no lock.
        assert body_of(store, "object") == b"old"
        put(store, "another", b"x", Create())
    finally:
        stopped.send_signal(signal.SIGKILL)
        stopped.communicate(timeout=60)
    put(store, "object", b"new", Match(version))
    assert body_of(store, "object") == b"new"


def test_deep_folder_is_removed_with_its_last_object_and_created_with_the_next(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    store.put("a/b/c/d/e", b"1", Create())
    store.put("a/b/x", b"1", Create())
    store.delete("a/b/c/d/e")
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == ["x"]
    store.delete("a/b/x")
    assert (tmp_path / "a" / "b").is_dir()
    store.put("a/b/c/d/e", b"2", Create())
    found = store.get("a/b/c/d/e")
    assert found is not None
    assert found.body == b"2"


def test_objects_are_created_in_a_folder_that_others_keep_removing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)

    def come_and_go(number: int) -> None:
        for attempt in range(200):
            key = f"a/b/c/{number}-{attempt}"
            assert isinstance(store.put(key, b"x", Create()), Landed)
            store.delete(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))
    assert list(store.list("")) == []


def test_uploads_begin_in_a_folder_that_others_keep_removing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)

    def come_and_go(number: int) -> None:
        for attempt in range(200):
            key = f"a/b/c/{number}-{attempt}"
            with store.upload(key) as upload:
                upload.write(b"x")
                assert isinstance(upload.finish(), Landed)
            store.delete(key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))
    assert list(store.list("")) == []


def test_non_durable_writes_are_not_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put("first", b"1", Create())
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    assert isinstance(store.put("beat", b"2", Create(durable=False)), Landed)
    assert flushed == []
    assert isinstance(store.put("entry", b"3", Create()), Landed)
    assert len(flushed) == 2, "its bytes, and its name"


def test_empty_object_is_created_once_under_its_own_name(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = os.open

    def noting(path: str, flags: int, *mode: int, **options: int) -> int:
        if flags & os.O_CREAT:
            made.append(path)
        return real(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", noting)
    reply = store.put("folder/marker", b"", Create())
    assert isinstance(reply, Landed)
    assert made == ["marker"]
    found = store.head("folder/marker")
    assert found is not None
    assert (found.size_bytes, found.version) == (0, reply.version)
    assert isinstance(store.put("folder/marker", b"", Create()), Refused)
    monkeypatch.undo()
    failing = root / "folder" / "other"
    with monkeypatch.context() as patch:
        failing_call(patch, "utime", errno.EIO, when=always)
        assert isinstance(store.put("folder/other", b"", Create()), Unclear), "its name is there"
    assert failing.exists()
