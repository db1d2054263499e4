"""Selection of the next files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidelock.core.errors import ConfigInvalid
from tidelock.storage.contract import ObjectMeta
from tidelock.streamer.sources.files import FilePosition, is_data, next_files, parse_file_position


def file(key: str, at_ms: int, size: int = 10) -> ObjectMeta:
    return ObjectMeta(key, size, f"{key}@{at_ms}", at_ms)


def names(files: tuple[ObjectMeta, ...]) -> list[str]:
    return [each.key for each in files]


def test_files_are_selected_by_time_and_name_up_to_a_size() -> None:
    files = [file("c", 5), file("b", 5), file("a", 9), file("d", 1)]
    assert names(next_files(files, FilePosition(), bytes_max=30)) == ["d", "b", "c"]
    assert names(next_files(files, FilePosition(), bytes_max=1)) == ["d"]


def test_file_with_the_newest_time_is_unread_until_it_is_read() -> None:
    position = FilePosition().after([file("b", 5)], 0)
    assert position.is_unread(file("a", 5), 0)
    assert not position.is_unread(file("b", 5), 0)
    assert not position.is_unread(file("a", 4), 0)


def test_lookback_finds_late_files() -> None:
    position = FilePosition().after([file("a", 100), file("b", 150)], 60)
    assert position.is_unread(file("late", 95), 60)
    assert not position.is_unread(file("a", 100), 60)
    assert not position.is_unread(file("late", 80), 60)


def test_longer_lookback_does_not_read_files_again() -> None:
    position = FilePosition().after([file("a", 100), file("b", 150)], 0)
    assert not position.is_unread(file("a", 100), 1_000)
    assert position.is_unread(file("late", 150), 1_000)


def test_names_before_the_lookback_are_dropped() -> None:
    position = FilePosition()
    for at_ms in range(0, 1_000, 10):
        position = position.after([file(str(at_ms), at_ms)], 50)
    assert len(position.seen) == 6


def test_hudis_checkpoint_includes_all_files_up_to_its_time() -> None:
    position = parse_file_position("100")
    assert not position.is_unread(file("a", 100), 0)
    assert position.is_unread(file("a", 101), 0)
    assert not position.is_unread(file("a", 90), 50)


@pytest.mark.parametrize("text", ["", "x", "{}", '{"time":1,"floor":0,"seen":[1]}', "-5"])
def test_invalid_positions_are_rejected(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="expected a position in a folder"):
        parse_file_position(text)


@pytest.mark.parametrize("key", ["_SUCCESS", ".hidden", "a/_temporary/b.json", "x/.crc/y"])
def test_hidden_and_empty_files_are_ignored(key: str) -> None:
    assert not is_data(file(key, 1))
    assert not is_data(file("a", 1, size=0))


@given(
    some.lists(some.tuples(some.integers(0, 5), some.integers(0, 30)), max_size=40),
    some.integers(1, 60),
)
def test_every_file_is_read_once_whenever_it_appears_in_order(
    arrivals: list[tuple[int, int]], bytes_max: int
) -> None:
    """Files appear in order of time; sizes and batches vary."""
    here: list[ObjectMeta] = []
    read: list[str] = []
    position, now = FilePosition(), 0
    for number, (later, size) in enumerate(arrivals):
        now += later
        here.append(file(f"{number * 7919 % 1000}-{number}", now, size + 1))
        chosen = next_files(here, position, bytes_max=bytes_max)
        read += names(chosen)
        position = parse_file_position(position.after(chosen, 0).text())
    while chosen := next_files(here, position, bytes_max=bytes_max):
        read += names(chosen)
        position = position.after(chosen, 0)
    assert sorted(read) == sorted(each.key for each in here)
