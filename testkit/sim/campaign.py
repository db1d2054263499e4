"""Runs many schedules of the lock simulator; collects failures and fault counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from testkit.campaign import SeedRange, SimulationResult, run_seeds
from testkit.sim.plan import Clocks, Fault
from testkit.sim.schedule import run_schedule

_CHUNK = 500
_WILD_EVERY = 5
_COLLECT_EVERY = 64


@dataclass(frozen=True, slots=True)
class Campaign(SeedRange):
    """The seeds to run. Without `clocks`, every fifth seed has wild clocks."""

    clocks: Clocks | None = None

    def clocks_of(self, seed: int) -> Clocks:
        """Return the clocks of `seed`."""
        if self.clocks is not None:
            return self.clocks
        return Clocks.WILD if seed % _WILD_EVERY == 0 else Clocks.PROMISED

    def chunks(self) -> Iterator[Campaign]:
        """Yield parts of the campaign that take about a second each."""
        return self.split(_CHUNK)


@dataclass(slots=True)
class CampaignResult(SimulationResult[tuple[Fault, str]]):
    """The counts and failures of a campaign; faults are counted by fault and phase."""

    grants: int = 0
    updates: int = 0
    canary_lost: int = 0

    def count(self, fault: Fault) -> int:
        """Return how often `fault` occurred."""
        return sum(count for (fired, _), count in self.fired.items() if fired is fault)

    def table(self) -> str:
        """Return a line for each fault, with its count in each phase."""
        lines = []
        for fault in Fault:
            cells = {where: n for (fired, where), n in self.fired.items() if fired is fault}
            counts = " ".join(f"{where}:{n}" for where, n in sorted(cells.items()))
            lines.append(f"{fault.value:<28} {sum(cells.values()):>9}  {counts}")
        return "\n".join(lines)

    def summary(self) -> str:
        """Return the result as one line."""
        return (
            f"{self.schedules} schedules, {self.events} events, {self.grants} grants,"
            f" {self.updates} fenced updates, {self.canary_lost} lost by the canary,"
            f" {len(self.failures)} failures, {self.duration}"
        )


def run_part(campaign: Campaign) -> CampaignResult:
    """Run the seeds of `campaign` in this process."""

    def run_seed(seed: int) -> CampaignResult:
        outcome = run_schedule(seed, campaign.clocks_of(seed))
        failures = [f"{outcome.plan.replay}  # {first}" for first in outcome.violations[:1]]
        return CampaignResult(
            schedules=1,
            events=outcome.events,
            fired=Counter(outcome.fired),
            failures=failures,
            grants=outcome.grants,
            updates=outcome.updates,
            canary_lost=outcome.canary_lost,
        )

    return run_seeds(CampaignResult(), campaign, run_seed, collect_every=_COLLECT_EVERY)
