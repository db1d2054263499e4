"""Every operation and service at once, killed and put to sleep: a serial replay explains it all.

A few seconds on each kind of table; `make stress` runs for as long as one likes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidelock.ops.fleet.journal import Noted
from tidelock.testing.interleaving.oracle import Done, State
from tidelock.testing.stress.replay import Committed, Replay, Story, Undone
from tidelock.testing.stress.running import Plan, run
from tidelock.testing.stress.terms import KINDS, Kind, Terms

SHORT = Plan(seconds=12, writers=3, servers=1, readers=1, harm_every_s=4, restore_every_s=7)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_replay_explains_what_readers_saw_while_processes_died(
    kind: Kind, tmp_path: Path
) -> None:
    result = run(tmp_path, kind, SHORT)
    assert result.wrong == [], result.facts
    # How much was done depends on the machine; that something was done does not.
    assert result.counted["acknowledged"] > 0
    assert result.counted["snapshots"] > 0
    assert result.counted["kills"] + result.counted["sleeps"] > 0


TERMS = Terms("memory://stress", Kind("cow", "simple", "occ"))
STEPS = [step for step in range(1, 60) if TERMS.deed("w", step).verb in ("upsert", "insert")][:4]


def scene() -> tuple[Story, list[Noted]]:
    """Return four writes of one writer, one after the other, as they were acknowledged."""
    commits = [
        Committed(f"{10 * at}", f"{10 * at + 5}", f"w/{step}", "UPSERT")
        for at, step in enumerate(STEPS, 1)
    ]
    noted = [
        Noted("w", "wrote", 0, {"step": step, "instant": c.instant, "completion": c.completion})
        for step, c in zip(STEPS, commits, strict=True)
    ]
    return Story(tuple(commits)), noted


def states(story: Story) -> list[State]:
    dones = [
        Done(TERMS.deed("w", int(commit.step[2:])), commit.instant, commit.completion)
        for commit in story.commits
    ]
    return [state for _, state in TERMS.oracle.states(dones)]


def judged(story: Story, noted: list[Noted], final: State) -> list[str]:
    replay = Replay(TERMS)
    replay.judge(story, noted, final.found())
    return replay.wrong


def read(until: str, state: State, **more: object) -> Noted:
    return Noted("r", "read", 0, {"until": until, "rows": state.found(), **more})


def test_reads_at_every_place_are_explained() -> None:
    story, noted = scene()
    each = states(story)
    reads = [
        read(
            story.commits[at].completion,
            each[at],
            since=story.commits[at - 1].completion,
            changed=each[at].written_by([story.commits[at].instant]),
            as_of=story.commits[at - 1].instant,
            completed=story.commits[at - 1].completion,
            then=each[at - 1].found(),
        )
        for at in range(1, 4)
    ]
    assert judged(story, [*noted, *reads], each[-1]) == []


def test_a_write_that_was_acknowledged_and_is_gone_is_found() -> None:
    story, noted = scene()
    lost = replace(story, commits=story.commits[:-1])
    (said, *_) = judged(lost, noted, states(lost)[-1])
    assert f"w/{STEPS[-1]} was acknowledged" in said


def test_a_snapshot_that_lacks_an_earlier_write_is_found() -> None:
    story, noted = scene()
    each = states(story)
    late = read(story.commits[3].completion, each[1])
    (said,) = judged(story, [*noted, late], each[-1])
    assert "the snapshot of r" in said


def test_changes_that_skip_a_write_are_found() -> None:
    story, noted = scene()
    each = states(story)
    first, last = story.commits[0], story.commits[3]
    skipped = each[3].written_by([last.instant])
    look = read(last.completion, each[3], since=first.completion, changed=skipped)
    (said,) = judged(story, [*noted, look], each[-1])
    assert "the changes of r" in said


def test_a_wrong_look_into_the_past_is_found() -> None:
    story, noted = scene()
    each = states(story)
    asked, completed = story.commits[1].instant, story.commits[1].completion
    then = each[3].found()
    last = story.commits[3].completion
    look = read(last, each[3], as_of=asked, completed=completed, then=then)
    (said,) = judged(story, [*noted, look], each[-1])
    assert f"as of {asked}" in said


def test_a_step_that_was_applied_twice_is_found() -> None:
    story, noted = scene()
    again = replace(story.commits[3], instant="90", completion="95")
    twice = Story((*story.commits, again))
    assert f"w/{STEPS[3]} was applied 2 times" in judged(twice, noted, states(twice)[-1])


def test_what_was_taken_back_shows_until_then_and_not_after() -> None:
    story, noted = scene()
    each = states(story)
    gone = story.commits[3]
    undone = Story(story.commits[:3], (Undone("47", frozenset({gone.instant})),))
    before = read(gone.completion, each[3])
    after = read(story.commits[2].completion, each[2])
    assert judged(undone, [*noted, before, after], each[2]) == []
    assert judged(undone, [*noted, read("46", each[1])], each[2]) != []
