"""Many schedules, over several processes: what failed, and what struck how often."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tidelock.testing.seeds import run_parts, worlds_collected
from tidelock.testing.txnsim.plan import Fault
from tidelock.testing.txnsim.schedule import run_schedule
from tidelock.testing.txnsim.services.scene import run_schedule as run_service_schedule

_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Campaign:
    """The seeds to run; with `services`, table services run beside the writers.

    With `java`, somebody without a ledger runs services, too.
    """

    start: int
    schedules: int
    services: bool = False
    java: bool = False

    def chunks(self) -> Iterator[Campaign]:
        """Yield the campaign in parts that take a few seconds."""
        end = self.start + self.schedules
        for start in range(self.start, end, _CHUNK):
            yield Campaign(start, min(_CHUNK, end - start), self.services, self.java)


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
    served = partial(run_service_schedule, java=campaign.java)
    run = served if campaign.services else run_schedule
    with worlds_collected():
        for seed in range(campaign.start, campaign.start + campaign.schedules):
            outcome = run(seed)
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
