"""Cases: their text form, the location of their keys, how they are drawn, and replay."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pytest

from testkit.interleaving.cases import KEYS, Case, parsed
from testkit.interleaving.generate import TABLES, VERBS, complete, sampled
from testkit.interleaving.runner import run_case
from testkit.interleaving.shrink import shrunk
from tidelock.hudi.bucket_index import bucket_ids


def test_a_case_is_one_line() -> None:
    for case in sampled(3, 300):
        assert parsed(str(case)) == case


def test_a_line_without_an_operation_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected an operation"):
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


def test_keys_are_in_the_buckets_of_their_locations() -> None:
    for spot, keys in KEYS.items():
        found = set(bucket_ids([pa.array(keys)], 2).to_pylist())
        assert found == {1 if spot == "bkt" else 0}, spot


def test_a_case_runs_the_same_way_every_time() -> None:
    case = parsed(
        "mor bucket event occ logs fresh | upsert:old delete:old compact"
        " | b>placed a>commit c b a | touch"
    )
    traces = []
    for _ in range(2):
        lines: list[str] = []
        run_case(case, trace=lines.append)
        traces.append(lines)
    assert traces[0] == traces[1] != []


def test_actors_conflict_where_the_line_says() -> None:
    case = parsed("cow simple commit single base fresh | upsert:old upsert:old | a>commit b a")
    outcome = run_case(case)
    assert outcome.ends == {"a": "done", "b": "done"}
    assert (outcome.reached, outcome.rebases, outcome.wrong) == (1, 1, [])


def test_a_case_shrinks_to_the_cause_of_its_failure() -> None:
    case = parsed(
        "mor bucket tie occ logs stale | upsert:old delete:bkt- clean | a>begun b c a | touch"
    )

    def judge(some: Case) -> str:
        return "wrong" if any(act.verb == "delete" for act in some.acts) else ""

    small = shrunk(case, judge)
    assert str(small) == "cow simple event single empty fresh | delete:new | a"
