"""Many schedules, over several processes: what failed, and what struck how often."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tidelock.testing.seeds import run_parts, worlds_collected
from tidelock.testing.txnsim.plan import Fault
from tidelock.testing.txnsim.rows.scene import run_schedule as run_row_schedule
from tidelock.testing.txnsim.schedule import Outcome, run_schedule
from tidelock.testing.txnsim.services.scene import run_schedule as run_service_schedule

_CHUNK = 100
_ROW_CHUNK = 10


@dataclass(frozen=True, slots=True)
class Campaign:
    """The seeds to run; with `services`, table services run beside the writers.

    With `java`, somebody without a ledger runs services, too. With `rows`, all of it is done by the
    operations that ship, on real files.
    """

    start: int
    schedules: int
    services: bool = False
    java: bool = False
    rows: bool = False

    def run(self, seed: int, trace: list[str] | None = None) -> Outcome:
        """Run one seed."""
        if self.rows:
            return run_row_schedule(seed, trace)
        if self.services:
            return run_service_schedule(seed, trace, java=self.java)
        return run_schedule(seed, trace)

    def chunks(self) -> Iterator[Campaign]:
        """Yield the campaign in parts that take a few seconds."""
        end, chunk = self.start + self.schedules, _ROW_CHUNK if self.rows else _CHUNK
        for start in range(self.start, end, chunk):
            yield replace(self, start=start, schedules=min(chunk, end - start))


@dataclass(slots=True)
class Tally:
    """What a campaign came to."""

    schedules: int = 0
    events: int = 0
    commits: int = 0
    rebases: int = 0
    services: int = 0
    took_s: float = 0.0
    fired: Counter[Fault] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add another part."""
        self.schedules += other.schedules
        self.events += other.events
        self.commits += other.commits
        self.rebases += other.rebases
        self.services += other.services
        self.fired.update(other.fired)
        self.failures += other.failures

    def table(self) -> str:
        """Return how often each fault struck, a line each."""
        return "\n".join(f"{fault.value:<44} {self.fired[fault]:>9}" for fault in Fault)

    def summary(self) -> str:
        """Return the result in a line."""
        rate = self.schedules / self.took_s if self.took_s else 0.0
        return (
            f"{self.schedules} schedules, {self.events} events, {self.commits} commits,"
            f" {self.rebases} rebases, {self.services} services, {len(self.failures)} failures,"
            f" {self.took_s:.1f} s ({rate:.0f} schedules/s)"
        )


def run_part(campaign: Campaign) -> Tally:
    """Run the seeds of `campaign` in this process."""
    tally = Tally()
    with worlds_collected():
        for seed in range(campaign.start, campaign.start + campaign.schedules):
            outcome = campaign.run(seed)
            tally.schedules += 1
            tally.events += outcome.events
            tally.commits += outcome.commits
            tally.rebases += outcome.rebases
            tally.services += outcome.services
            tally.fired.update(outcome.fired)
            if outcome.violations:
                tally.failures.append(f"{outcome.replay}  # {outcome.violations[0]}")
            if seed % 16 == 0:
                gc.collect()
    return tally


def run_campaign(campaign: Campaign, *, processes: int, say: Callable[[str], None]) -> Tally:
    """Run `campaign` over several processes, telling `say` of failures and of progress."""
    parts = campaign.chunks()
    return run_parts(
        Tally(), campaign, parts, run_part, add=Tally.add, processes=processes, say=say
    )
