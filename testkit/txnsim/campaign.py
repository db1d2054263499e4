"""Runs many schedules of the transaction simulator; collects failures and fault counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from testkit.campaign import SeedRange, SimulationResult, run_seeds
from testkit.txnsim.plan import Fault
from testkit.txnsim.rows.scene import run_schedule as run_row_schedule
from testkit.txnsim.schedule import Outcome, run_schedule
from testkit.txnsim.services.scene import run_schedule as run_service_schedule

_CHUNK = 100
_ROW_CHUNK = 10
_COLLECT_EVERY = 16


@dataclass(frozen=True, slots=True)
class Campaign(SeedRange):
    """The seeds to run; with `services`, table services run concurrently with the writers.

    With `java`, an external writer runs services as well. With `rows`, the production operations
    run on real files.
    """

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
        """Yield the campaign in parts of a few seconds each."""
        return self.split(_ROW_CHUNK if self.rows else _CHUNK)


@dataclass(slots=True)
class CampaignResult(SimulationResult[Fault]):
    """The counts and failures of a campaign."""

    commits: int = 0
    rebases: int = 0
    services: int = 0

    def table(self) -> str:
        """Return how often each fault occurred, one line per fault."""
        return "\n".join(f"{fault.value:<44} {self.fired[fault]:>9}" for fault in Fault)

    def summary(self) -> str:
        """Return the result as one line."""
        return (
            f"{self.schedules} schedules, {self.events} events, {self.commits} commits,"
            f" {self.rebases} rebases, {self.services} services, {len(self.failures)} failures,"
            f" {self.duration}"
        )


def run_part(campaign: Campaign) -> CampaignResult:
    """Run the seeds of `campaign` in this process."""

    def run_seed(seed: int) -> CampaignResult:
        outcome = campaign.run(seed)
        return CampaignResult(
            schedules=1,
            events=outcome.events,
            fired=Counter(outcome.fired),
            failures=[f"{outcome.replay}  # {first}" for first in outcome.violations[:1]],
            commits=outcome.commits,
            rebases=outcome.rebases,
            services=outcome.services,
        )

    return run_seeds(CampaignResult(), campaign, run_seed, collect_every=_COLLECT_EVERY)
