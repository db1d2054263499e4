"""All operations and services concurrently, killed and suspended: a serial replay explains all
reads.

A few seconds on each kind of table; `make stress` runs for any duration.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testkit.interleaving.oracle import Done, State
from testkit.stress.parameters import KINDS, Kind, Parameters
from testkit.stress.replay import Committed, History, Removal, Replay
from testkit.stress.running import Plan, run
from tidelock.workload.journal import ProgramEvent

SHORT = Plan(seconds=12, writers=3, servers=1, readers=1, fault_every_s=4, restore_every_s=7)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_replay_explains_reads_while_processes_are_killed(kind: Kind, tmp_path: Path) -> None:
    result = run(tmp_path, kind, SHORT)
    assert result.wrong == [], result.facts
    # How much was done depends on the machine; that something was done does not.
    assert result.counted["acknowledged"] > 0
    assert result.counted["snapshots"] > 0
    assert result.counted["kills"] + result.counted["sleeps"] > 0


TERMS = Parameters("memory://stress", Kind("cow", "simple", "occ"))
STEPS = [step for step in range(1, 60) if TERMS.change("w", step).verb in ("upsert", "insert")][:4]


def scene() -> tuple[History, list[ProgramEvent]]:
    """Return four consecutive acknowledged writes of one writer."""
    commits = [
        Committed(f"{10 * at}", f"{10 * at + 5}", f"w/{step}", "UPSERT")
        for at, step in enumerate(STEPS, 1)
    ]
    noted = [
        ProgramEvent(
            "w", "wrote", 0, {"step": step, "instant": c.instant, "completion": c.completion}
        )
        for step, c in zip(STEPS, commits, strict=True)
    ]
    return History(tuple(commits)), noted


def states(history: History) -> list[State]:
    dones = [
        Done(TERMS.change("w", int(commit.step[2:])), commit.instant, commit.completion)
        for commit in history.commits
    ]
    return [state for _, state in TERMS.oracle.states(dones)]


def problems(history: History, noted: list[ProgramEvent], final: State) -> list[str]:
    replay = Replay(TERMS)
    replay.judge(history, noted, final.found())
    return replay.wrong


def read(until: str, state: State, **more: object) -> ProgramEvent:
    return ProgramEvent("r", "read", 0, {"until": until, "rows": state.found(), **more})


def test_reads_at_every_position_are_explained() -> None:
    history, noted = scene()
    each = states(history)
    reads = [
        read(
            history.commits[at].completion,
            each[at],
            since=history.commits[at - 1].completion,
            changed=each[at].written_by([history.commits[at].instant]),
            as_of=history.commits[at - 1].instant,
            completed=history.commits[at - 1].completion,
            then=each[at - 1].found(),
        )
        for at in range(1, 4)
    ]
    assert problems(history, [*noted, *reads], each[-1]) == []


def test_missing_acknowledged_write_is_detected() -> None:
    history, noted = scene()
    lost = replace(history, commits=history.commits[:-1])
    (problem, *_) = problems(lost, noted, states(lost)[-1])
    assert f"w/{STEPS[-1]} was acknowledged" in problem


def test_snapshot_that_lacks_an_earlier_write_is_detected() -> None:
    history, noted = scene()
    each = states(history)
    late = read(history.commits[3].completion, each[1])
    (problem,) = problems(history, [*noted, late], each[-1])
    assert "the snapshot of r" in problem


def test_changes_that_skip_a_write_are_detected() -> None:
    history, noted = scene()
    each = states(history)
    first, last = history.commits[0], history.commits[3]
    skipped = each[3].written_by([last.instant])
    wrong_read = read(last.completion, each[3], since=first.completion, changed=skipped)
    (problem,) = problems(history, [*noted, wrong_read], each[-1])
    assert "the changes of r" in problem


def test_wrong_time_travel_read_is_detected() -> None:
    history, noted = scene()
    each = states(history)
    requested, completed = history.commits[1].instant, history.commits[1].completion
    then = each[3].found()
    last = history.commits[3].completion
    wrong_read = read(last, each[3], as_of=requested, completed=completed, then=then)
    (problem,) = problems(history, [*noted, wrong_read], each[-1])
    assert f"as of {requested}" in problem


def test_step_applied_twice_is_detected() -> None:
    history, noted = scene()
    again = replace(history.commits[3], instant="90", completion="95")
    twice = History((*history.commits, again))
    assert f"w/{STEPS[3]} was applied 2 times" in problems(twice, noted, states(twice)[-1])


def test_rolled_back_write_is_visible_until_its_rollback_and_not_after() -> None:
    history, noted = scene()
    each = states(history)
    gone = history.commits[3]
    removals = History(history.commits[:3], (Removal("47", frozenset({gone.instant})),))
    before = read(gone.completion, each[3])
    after = read(history.commits[2].completion, each[2])
    assert problems(removals, [*noted, before, after], each[2]) == []
    assert problems(removals, [*noted, read("46", each[1])], each[2]) != []
