"""Which files come next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tidelock.base.errors import ConfigInvalid
from tidelock.pipeline.streamer.sources.selecting import FilePlace, file_place, is_data, selected
from tidelock.store.contract import ObjectMeta


def file(key: str, at_ms: int, size: int = 10) -> ObjectMeta:
    return ObjectMeta(key, size, f"{key}@{at_ms}", at_ms)


def names(files: tuple[ObjectMeta, ...]) -> list[str]:
    return [each.key for each in files]


def test_files_come_by_time_and_name_up_to_a_size() -> None:
    files = [file("c", 5), file("b", 5), file("a", 9), file("d", 1)]
    assert names(selected(files, FilePlace(), bytes_max=30)) == ["d", "b", "c"]
    assert names(selected(files, FilePlace(), bytes_max=1)) == ["d"]


def test_a_file_of_the_time_reached_is_news_until_it_was_read() -> None:
    place = FilePlace().after([file("b", 5)], 0)
    assert place.is_news(file("a", 5), 0)
    assert not place.is_news(file("b", 5), 0)
    assert not place.is_news(file("a", 4), 0)


def test_a_look_back_finds_files_that_show_up_late() -> None:
    place = FilePlace().after([file("a", 100), file("b", 150)], 60)
    assert place.is_news(file("late", 95), 60)
    assert not place.is_news(file("a", 100), 60)
    assert not place.is_news(file("late", 80), 60)


def test_a_longer_look_back_does_not_read_again_what_was_not_written_down() -> None:
    place = FilePlace().after([file("a", 100), file("b", 150)], 0)
    assert not place.is_news(file("a", 100), 1_000)
    assert place.is_news(file("late", 150), 1_000)


def test_names_are_forgotten_once_they_are_behind_the_look_back() -> None:
    place = FilePlace()
    for at_ms in range(0, 1_000, 10):
        place = place.after([file(str(at_ms), at_ms)], 50)
    assert len(place.seen) == 6


def test_hudis_time_means_all_files_up_to_it() -> None:
    place = file_place("100")
    assert not place.is_news(file("a", 100), 0)
    assert place.is_news(file("a", 101), 0)
    assert not place.is_news(file("a", 90), 50)


@pytest.mark.parametrize("text", ["", "x", "{}", '{"time":1,"floor":0,"seen":[1]}', "-5"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="no checkpoint of a folder"):
        file_place(text)


@pytest.mark.parametrize("key", ["_SUCCESS", ".hidden", "a/_temporary/b.json", "x/.crc/y"])
def test_hidden_files_are_no_data(key: str) -> None:
    assert not is_data(file(key, 1))
    assert not is_data(file("a", 1, size=0))


@given(
    some.lists(some.tuples(some.integers(0, 5), some.integers(0, 30)), max_size=40),
    some.integers(1, 60),
)
def test_every_file_is_read_once_whenever_it_appears_in_order(
    arrivals: list[tuple[int, int]], bytes_max: int
) -> None:
    """Files appear with times that never lie behind what was there; sizes and batches vary."""
    here: list[ObjectMeta] = []
    read: list[str] = []
    place, now = FilePlace(), 0
    for number, (later, size) in enumerate(arrivals):
        now += later
        here.append(file(f"{number * 7919 % 1000}-{number}", now, size + 1))
        chosen = selected(here, place, bytes_max=bytes_max)
        read += names(chosen)
        place = file_place(place.after(chosen, 0).text())
    while chosen := selected(here, place, bytes_max=bytes_max):
        read += names(chosen)
        place = place.after(chosen, 0)
    assert sorted(read) == sorted(each.key for each in here)
