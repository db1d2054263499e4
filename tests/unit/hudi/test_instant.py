"""Instants: times, file names, and the latest of several states."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.core.errors import InvalidInput
from tidelock.hudi.timeline.instant import (
    Action,
    Instant,
    InstantState,
    format_time,
    latest_states,
    parse_instant,
    parse_time,
    query_time,
)

REQ, DONE = "20250713010535797", "20250713010536200"
UTC = dt.UTC


@pytest.mark.parametrize(
    ("name", "instant"),
    [
        (f"{REQ}.commit.requested", Instant(REQ, Action.COMMIT, InstantState.REQUESTED)),
        (f"{REQ}.inflight", Instant(REQ, Action.COMMIT, InstantState.INFLIGHT)),
        (f"{REQ}_{DONE}.commit", Instant(REQ, Action.COMMIT, InstantState.COMPLETED, DONE)),
        (f"{REQ}.deltacommit.inflight", Instant(REQ, Action.DELTA_COMMIT, InstantState.INFLIGHT)),
        (f"{REQ}.compaction.requested", Instant(REQ, Action.COMPACTION, InstantState.REQUESTED)),
        (
            f"{REQ}.logcompaction.inflight",
            Instant(REQ, Action.LOG_COMPACTION, InstantState.INFLIGHT),
        ),
        (f"{REQ}.clustering.requested", Instant(REQ, Action.CLUSTERING, InstantState.REQUESTED)),
        (
            f"{REQ}_{DONE}.replacecommit",
            Instant(REQ, Action.REPLACE_COMMIT, InstantState.COMPLETED, DONE),
        ),
        (f"{REQ}_{DONE}.savepoint", Instant(REQ, Action.SAVEPOINT, InstantState.COMPLETED, DONE)),
        (f"{REQ}_{DONE}.indexing", Instant(REQ, Action.INDEXING, InstantState.COMPLETED, DONE)),
        (
            "20250713010535_20250713010536.clean",
            Instant("20250713010535", Action.CLEAN, InstantState.COMPLETED, "20250713010536"),
        ),
    ],
)
def test_hudi_timeline_names_are_parsed(name: str, instant: Instant) -> None:
    assert parse_instant(name) == instant
    assert instant.file_name == name


def test_inflight_commit_can_also_name_its_action() -> None:
    assert parse_instant(f"{REQ}.commit.inflight") == Instant(
        REQ, Action.COMMIT, InstantState.INFLIGHT
    )


def test_completed_file_without_a_completion_time_is_of_an_old_version() -> None:
    assert parse_instant(f"{REQ}.commit") == Instant(REQ, Action.COMMIT, InstantState.COMPLETED, "")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_version_",
        "manifest_1",
        f"{REQ}",
        f"{REQ}.",
        f"{REQ}.unknown.requested",
        f"{REQ}.commit.done",
        f"{REQ}_{DONE}.commit.requested",
        f"{REQ}_{DONE}.commit.0a1b2c3d-aaaa-bbbb-cccc-0123456789ab",
        f"{REQ}_{DONE}.commit.crc",
        f".{REQ}_{DONE}.commit.crc",
        f"{REQ}_{DONE}.compaction",
        f"{REQ}_{DONE}.clustering",
        f"{REQ}_{DONE}.inflight",
        f"{REQ}_.commit",
        f"x{REQ}.commit",
        "٢٠٢٥٠٧١٣٠١٠٥٣٥٧٩٧.commit.requested",
        f"{REQ}.schemacommit",
        f"{REQ}_{DONE}_{DONE}.commit",
    ],
)
def test_other_names_are_not_instants(name: str) -> None:
    assert parse_instant(name) is None


TIMES = st.from_regex(r"[0-9]{17}|[0-9]{14}", fullmatch=True)
PENDING = st.builds(
    Instant,
    TIMES,
    st.sampled_from(Action),
    st.sampled_from([InstantState.REQUESTED, InstantState.INFLIGHT]),
)
COMPLETED = st.builds(
    lambda requested, action, completion: Instant(
        requested, action.completed, InstantState.COMPLETED, completion
    ),
    TIMES,
    st.sampled_from(Action),
    TIMES,
)


@given(PENDING | COMPLETED)
def test_names_round_trip(instant: Instant) -> None:
    assert parse_instant(instant.file_name) == instant


@given(st.text(max_size=50))
def test_any_name_is_parsed_or_ignored(name: str) -> None:
    found = parse_instant(name)
    assert found is None or found.requested in name


@pytest.mark.parametrize(
    ("action", "completed"),
    [
        (Action.COMPACTION, Action.COMMIT),
        (Action.LOG_COMPACTION, Action.DELTA_COMMIT),
        (Action.CLUSTERING, Action.REPLACE_COMMIT),
        (Action.CLEAN, Action.CLEAN),
    ],
)
def test_service_completes_under_the_action_of_a_write(action: Action, completed: Action) -> None:
    requested = Instant(REQ, action, InstantState.REQUESTED)
    done = requested.started().done(DONE)
    assert done == Instant(REQ, completed, InstantState.COMPLETED, DONE)
    assert done.identity == requested.identity
    assert done.action.writes_data == (completed is not Action.CLEAN)


@given(st.permutations([InstantState.REQUESTED, InstantState.INFLIGHT, InstantState.COMPLETED]))
def test_latest_state_wins_in_any_order(states: list[InstantState]) -> None:
    requested = Instant(REQ, Action.COMPACTION, InstantState.REQUESTED)
    files = {
        InstantState.REQUESTED: requested,
        InstantState.INFLIGHT: requested.started(),
        InstantState.COMPLETED: requested.done(DONE),
    }
    assert latest_states(files[state] for state in states) == (requested.done(DONE),)


def test_savepoint_and_its_commit_are_two_instants() -> None:
    commit = Instant(REQ, Action.COMMIT, InstantState.COMPLETED, DONE)
    savepoint = Instant(REQ, Action.SAVEPOINT, InstantState.COMPLETED, "20250801000000000")
    assert latest_states([savepoint, commit]) == (commit, savepoint)


def test_first_of_two_completions_wins() -> None:
    first = Instant(REQ, Action.COMMIT, InstantState.COMPLETED, DONE)
    second = Instant(REQ, Action.COMMIT, InstantState.COMPLETED, "20250713010539999")
    assert latest_states([second, first]) == (first,)


@given(st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(9999, 12, 31, 23, 59)))  # noqa: DTZ001
def test_times_are_calendar_times(calendar_time: dt.datetime) -> None:
    calendar_time = calendar_time.replace(
        microsecond=calendar_time.microsecond // 1000 * 1000, tzinfo=UTC
    )
    epoch_ms = (calendar_time - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(milliseconds=1)
    assert (
        format_time(epoch_ms)
        == f"{calendar_time:%Y%m%d%H%M%S}{calendar_time.microsecond // 1000:03}"
    )
    assert parse_time(format_time(epoch_ms)) == epoch_ms


@given(st.integers(0, 253_402_300_799_999), st.integers(0, 253_402_300_799_999))
def test_times_sort_as_strings(one: int, other: int) -> None:
    assert (format_time(one) < format_time(other)) == (one < other)


def test_time_without_milliseconds_is_the_end_of_its_second() -> None:
    assert parse_time("20250713010535") == parse_time("20250713010535999")


@pytest.mark.parametrize(
    "time",
    ["", "2025", "20250713010535x", "20251313010535797", "20250230010535797", "20250713240000000"],
)
def test_impossible_time_is_refused(time: str) -> None:
    with pytest.raises(InvalidInput, match="invalid instant time"):
        parse_time(time)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        (REQ, REQ),
        ("20250713010535", "20250713010535"),
        ("2025-07-13", "20250713000000000"),
        ("2025-07-13 01:05:35", "20250713010535000"),
        ("2025-07-13T01:05:35.797Z", REQ),
    ],
)
def test_several_input_formats_of_times_are_accepted(text: str, time: str) -> None:
    assert query_time(text) == time


@pytest.mark.parametrize("text", ["", "yesterday", "2025", "2025-13-01", "2025-07-13 25:00:00"])
def test_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput):
        query_time(text)
