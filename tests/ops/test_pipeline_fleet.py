"""The judge of streamers, SQL and a compactor on one table. The run itself: make pipeline-fleet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.hands import arrow_rows
from tidelock.ops.fleet.journal import Noted
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.steps import Row, Terms
from tidelock.ops.fleet.verdict import judge
from tidelock.testing.pipelinefleet import STREAMERS, Inbox, Stage, follow, verdict
from tidelock.txn.mark import Mark

TERMS = Terms(seed=3, keys=40, rows=6)

_STREAMER = """
import json, pathlib, signal, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
folder, version, idle = pathlib.Path(sys.argv[1]), 0, False
def say(**facts):
    print(json.dumps(facts), flush=True)
while not ended:
    if (folder / f"{version:06}.json").exists():
        report = {"completion": str(version), "rebases": 0}
        say(event="batch", version=version, duration_ms=1, report=report)
        version, idle = version + 1, False
        continue
    if not idle:
        say(event="idle")
    idle = True
    time.sleep(0.005)
say(event="end")
"""


@contextmanager
def _like_a_streamer(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_streamer_is_given_a_file_for_each_batch_and_ended_when_it_has_taken_all(
    tmp_path: Path,
) -> None:
    inbox = Inbox(tmp_path, TERMS, "east")
    with _like_a_streamer(_STREAMER, tmp_path) as streamer:
        noted = list(follow(streamer, inbox, lambda: inbox.given >= 5))
        assert streamer.wait(60) == 0
    assert [each.facts["step"] for each in noted] == list(range(inbox.given))
    assert {each.name for each in noted} == {"streamer:east"}
    assert inbox.given == 5


def test_a_batch_that_fails_is_no_batch(tmp_path: Path) -> None:
    program = 'print(\'{"event": "failed", "error": {"message": "no"}}\', flush=True)'
    with (
        _like_a_streamer(program, tmp_path) as streamer,
        pytest.raises(AssertionError, match="a streamer failed"),
    ):
        list(follow(streamer, Inbox(tmp_path, TERMS, "east"), lambda: False))


def _stage(tmp_path: Path, *, left_out: int | None) -> Stage:
    """Return a run in which files were written as streamers would, but for one that was not."""
    articles = Articles(str(tmp_path / "orders"), TERMS, options={})
    with Crew[Articles, Role](tmp_path, articles) as crew, closing(articles.open()) as table:
        stage = Stage(crew)
        for name in STREAMERS:
            inbox = Inbox(tmp_path, TERMS, name)
            for step in range(4):
                inbox.give()
                lines = (tmp_path / f"{step:06}.json").read_text().splitlines()
                rows = tuple(Row(**json.loads(line)) for line in lines)
                some = rows[:0] if step == left_out else rows
                done = table.upsert(arrow_rows(some), mark=Mark(inbox.program, step))
                facts = {"step": step, "completion": done.completion, "took_ms": 1, "rebases": 0}
                stage.record.take(Noted(inbox.program, "wrote", 0, facts))
    return stage


def test_what_streamers_wrote_is_what_their_files_say(tmp_path: Path) -> None:
    stage = _stage(tmp_path, left_out=None)
    checks = list(judge(stage.crew, stage.record))
    assert all(check.passed is not False for check in checks), checks
    assert "8 steps landed" in checks[0].says


def test_a_batch_that_was_acknowledged_and_is_not_there_is_found(tmp_path: Path) -> None:
    stage = _stage(tmp_path, left_out=3)
    wrong = [check.says for check in judge(stage.crew, stage.record) if check.passed is False]
    assert any("wrong rows" in says for says in wrong)


def test_a_step_left_out_at_the_beginning_is_found(tmp_path: Path) -> None:
    stage = Stage(Crew(tmp_path, Articles(str(tmp_path / "orders"))))
    for step in (2, 3):
        stage.record.landed["streamer:east", step] = str(step)
    (gap,) = stage.record.gaps()
    assert "streamer:east left out a step" in gap


def test_failures_and_idleness_are_told(tmp_path: Path) -> None:
    stage = Stage(Crew(tmp_path, Articles(str(tmp_path / "orders"))))
    stage.record.take(Noted("sql", "failed", 0, {"step": 1, "says": "the table is gone"}))
    failed, idle = verdict(stage)
    assert not failed.passed
    assert "sql: the table is gone" in failed.says
    assert not idle.passed
    for name in STREAMERS:
        stage.record.landed[f"streamer:{name}", 0] = name
    stage.record.landed |= {("sql", step): str(step) for step in (1, 2, 3)}
    stage.record.failures.clear()
    stage.compactions["executed"] = 1
    assert all(check.passed for check in verdict(stage))
