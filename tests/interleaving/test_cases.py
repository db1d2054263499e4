"""Cases: their lines, where their keys lie, how they are drawn, and that they replay."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pytest

from tidelock.table.index.bucket import bucket_ids
from tidelock.testing.interleaving.cases import KEYS, Case, parsed
from tidelock.testing.interleaving.generate import TABLES, VERBS, complete, sampled
from tidelock.testing.interleaving.runner import run_case
from tidelock.testing.interleaving.shrink import shrunk


def test_a_case_is_one_line() -> None:
    for case in sampled(3, 300):
        assert parsed(str(case)) == case


def test_a_line_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no operation"):
        parsed("cow simple event single base fresh | up-sert | a")


def test_a_seed_draws_the_same_cases_and_every_operation() -> None:
    drawn = list(sampled(1, 1_000))
    assert drawn == list(sampled(1, 1_000))
    assert drawn != list(sampled(2, 1_000))
    assert all(case.is_possible for case in drawn)
    words = {
        f"{act.verb}+{act.change}" if act.change else act.verb for c in drawn for act in c.acts
    }
    assert words == set(VERBS)
    assert {(case.kind, case.index, case.mode) for case in drawn} == set(TABLES)


def test_the_complete_matrix_begins_with_possible_cases_that_differ() -> None:
    first = list(islice(complete(), 2_000))
    assert len(set(first)) == len(first)
    assert all(case.is_possible for case in first)


def test_keys_lie_in_the_buckets_that_their_spots_say() -> None:
    for spot, keys in KEYS.items():
        found = set(bucket_ids([pa.array(keys)], 2).to_pylist())
        assert found == {1 if spot == "bkt" else 0}, spot


def test_a_case_takes_the_same_course_every_time() -> None:
    case = parsed(
        "mor bucket event occ logs fresh | upsert:old delete:old compact"
        " | b>placed a>commit c b a | touch"
    )
    courses = []
    for _ in range(2):
        lines: list[str] = []
        run_case(case, trace=lines.append)
        courses.append(lines)
    assert courses[0] == courses[1] != []


def test_actors_meet_where_the_line_says() -> None:
    case = parsed("cow simple commit single base fresh | upsert:old upsert:old | a>commit b a")
    outcome = run_case(case)
    assert outcome.ends == {"a": "done", "b": "done"}
    assert (outcome.reached, outcome.rebases, outcome.wrong) == (1, 1, [])


def test_a_case_shrinks_to_what_makes_it_wrong() -> None:
    case = parsed(
        "mor bucket tie occ logs stale | upsert:old delete:bkt- clean | a>begun b c a | touch"
    )

    def judge(some: Case) -> str:
        return "wrong" if any(act.verb == "delete" for act in some.acts) else ""

    small = shrunk(case, judge)
    assert str(small) == "cow simple event single empty fresh | delete:new | a"
