"""Services and writers in processes of their own, one of them killed every second."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import tidelock as tl
from tests.process.serving import OPTIONS
from tidelock.ops.validate.ledger import check_ledger
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])
LASTS_S = 12
DEAD_S = 2.5
"""After that a heartbeat of these tests counts as dead."""


@dataclass
class Fleet:
    """Two writers and three processes that run services on one table."""

    home: Path
    held: ExitStack
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return str(self.home / "t")

    @property
    def stop(self) -> Path:
        return self.home / "stop"

    def start(self, number: int) -> None:
        role = "writer" if number < 2 else "service"
        said = self.held.enter_context((self.home / f"{number}.out").open("ab"))
        complained = self.held.enter_context((self.home / f"{number}.err").open("ab"))
        program = [sys.executable, "-m", "tests.process.serving"]
        self.running[number] = subprocess.Popen(
            [*program, role, self.uri, str(number), str(self.stop)], stdout=said, stderr=complained
        )

    def kill_one(self) -> None:
        number = random.choice(sorted(self.running))
        self.running[number].kill()
        self.running[number].wait()
        self.start(number)

    def end(self) -> None:
        self.stop.touch()
        for number, process in self.running.items():
            said = (self.home / f"{number}.err").read_text(encoding="utf-8")
            assert process.wait(60) == 0, said

    def kill_all(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def told(self) -> tuple[dict[int, int], dict[int, set[int]]]:
        """Return the last value of each key that was written, and all that ever were begun."""
        wrote: dict[int, int] = {}
        begun: dict[int, set[int]] = defaultdict(set)
        for number in (0, 1):
            for line in (self.home / f"{number}.out").read_text(encoding="utf-8").splitlines():
                word, value, *keys = line.split()
                for key in map(int, keys):
                    if word == "wrote":
                        wrote[key] = int(value)
                    else:
                        begun[key].add(int(value))
        return wrote, begun


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_nothing_is_lost_and_nothing_stays_pending(tmp_path: Path, kind: str) -> None:
    with ExitStack() as held:
        fleet = Fleet(tmp_path, held)
        held.callback(fleet.kill_all)
        tl.Table.create(fleet.uri, SCHEMA, key="id", type=kind, options=OPTIONS).close()
        for number in range(5):
            fleet.start(number)
        until = time.monotonic() + LASTS_S
        while time.monotonic() < until:
            time.sleep(1)
            fleet.kill_one()
        fleet.end()
        time.sleep(DEAD_S)
        with tl.Table.open(fleet.uri, options=OPTIONS) as table:
            # One cycle of each is enough for all that the dead left.
            table.clean()
            table.compact()
            assert table.cluster().left == ()
            assert table.writer().transactions.ledger.refresh().plans == {}
            found = table.read().to_pylist()
        wrote, begun = fleet.told()
    assert wrote, "nothing was written"
    values = {row["id"]: row["value"] for row in found}
    assert len(values) == len(found), "a key is there twice"
    for key, value in wrote.items():
        # A batch whose writer was killed may be there, but nothing older than what was confirmed.
        assert values[key] >= value
        assert values[key] in begun[key]
    store = open_store(fleet.uri)
    assert validate(store, more=[check_ledger]).problems == ()
