"""Runs a soak: keeps the programs going, does them harm, measures them, and judges the table.

What happened is kept in the folder as it happens, so that a soak that was interrupted goes on with
the same table, and its report covers all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from tidelock.base.clock import Clock
from tidelock.base.ids import SeededIds
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.verdict import Check, judge
from tidelock.ops.soak.curves import Curves, Sample, Written
from tidelock.ops.soak.keeping import load, save
from tidelock.ops.soak.lean import lean_checks
from tidelock.ops.soak.resources import usages
from tidelock.ops.soak.scenario import Harm, Scenario

_TICK_MS: Final = 200
_SAMPLE_EVERY_S: Final = 5.0
_ASLEEP_S: Final = 6.0
"""Longer than a heartbeat of a fleet may stay out."""

_START_MS_MAX: Final = 120_000
_END_MS_MAX: Final = 120_000


@dataclass(slots=True)
class Soak:
    """One soak with one crew, perhaps the continuation of an earlier run."""

    scenario: Scenario
    crew: Crew[Articles, Role]
    programs: dict[str, Role]
    clock: Clock
    ids: SeededIds
    tell: Callable[[str], None]
    calm: Callable[[], None] = lambda: None
    """Ends the faults of the store, once the programs have ended."""
    record: Record = field(default_factory=Record)
    curves: Curves = field(default_factory=Curves)
    checks: list[Check] = field(default_factory=list)
    elapsed_s: float = 0.0
    commits_min: int = 0
    """With fewer writes than this it has failed."""
    _lives_before: int = 0
    _began_ms: int = 0
    _before_s: float = 0.0
    _sampled_s: float = -_SAMPLE_EVERY_S
    _harmed_s: float = 0.0
    _told_s: float = 0.0
    _asleep: dict[str, float] = field(default_factory=dict)
    _ended: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Tell whether every check that could be made passed."""
        return all(check.passed is not False for check in self.checks)

    def resume(self) -> None:
        """Take up what an earlier run left in the folder, if there was one.

        Raises: `InvalidInput` if that was another scenario.
        """
        kept = load(self.crew.folder, self.scenario.name)
        if kept is None:
            return
        self._before_s = self.elapsed_s = kept.elapsed_s
        self.curves = kept.curves
        self._lives_before = max((sample.life for sample in kept.curves.samples), default=0)
        self._sampled_s = self._harmed_s = self._told_s = self._before_s

    def run(self, minutes: float) -> None:
        """Write for so long in all, then judge."""
        self._start()
        self._began_ms = self._now_ms()
        try:
            while self.elapsed_s < minutes * 60:
                self._tick()
                self.clock.sleep_ms(_TICK_MS)
        finally:
            self._save()
        self._finish()

    def _start(self) -> None:
        """Start the programs, and wait until each is at work: JVMs take their time."""
        began_ms = self._now_ms()
        for name, role in self.programs.items():
            self.crew.start(name, role)
        silent = set(self.programs)
        while silent and self._now_ms() < began_ms + _START_MS_MAX:
            for noted in self.crew.fresh():
                # What an earlier run noted comes first; its times were counted then.
                self.record.take(noted)
                silent -= {noted.name} if noted.at_ms >= began_ms else set()
            silent -= {name for name in silent if not self.crew.programs[name].is_running}
            self.clock.sleep_ms(_TICK_MS)

    def _tick(self) -> None:
        self.elapsed_s = self._before_s + (self._now_ms() - self._began_ms) / 1000
        self._hear()
        self._revive()
        if self.elapsed_s - self._sampled_s >= _SAMPLE_EVERY_S:
            self._sampled_s = self.elapsed_s
            self._sample()
        if self.scenario.harms and self.elapsed_s - self._harmed_s >= self.scenario.harm_every_s:
            self._harmed_s = self.elapsed_s
            self._harm()
        if self.elapsed_s - self._told_s >= 30:
            self._told_s = self.elapsed_s
            self._save()
            failed = f", {len(self.record.failures)} tries failed" if self.record.failures else ""
            self.tell(f"{self.elapsed_s / 60:6.1f} min  {len(self.record.landed)} writes{failed}")

    def _hear(self) -> None:
        at_s = round(self.elapsed_s, 1)
        for noted in self.crew.fresh():
            self.record.take(noted)
            if noted.did == "wrote":
                times = (
                    noted.facts[name] for name in ("took_ms", "commit_ms", "wait_ms", "lock_ms")
                )
                self.curves.writes.append(Written(at_s, *times))
            elif noted.did == "asked":
                self.curves.asked(at_s, self.programs[noted.name].value, noted.facts)

    def _revive(self) -> None:
        """Wake who has slept long enough; start again who has ended, and remember that it did."""
        for name, since_s in list(self._asleep.items()):
            if self.elapsed_s - since_s >= _ASLEEP_S:
                del self._asleep[name]
                self.crew.wake(name)
        for name, program in list(self.crew.programs.items()):
            if not program.is_running:
                self._ended.append(f"{name}: {self.crew.last_words(name)}")
                self.tell(f"{name} ended by itself: {self.crew.last_words(name)}")
                self.crew.start(name, program.role)

    def _harm(self) -> None:
        """Do something to one of the programs, but never to the first of its kind.

        So a program of each kind lives through the whole soak, and its memory can be judged.
        """
        spared = {
            next(n for n, has in self.programs.items() if has is role)
            for role in Role
            if role in self.programs.values()
        }
        victims = [n for n in self.programs if n not in spared and n not in self._asleep]
        if not victims:
            return
        name = victims[int(self.ids.jitter() * len(victims))]
        harm = self.scenario.harms[int(self.ids.jitter() * len(self.scenario.harms))]
        self.curves.harms.append((round(self.elapsed_s, 1), f"{harm.value} {name}"))
        match harm:
            case Harm.KILL:
                self.crew.kill(name)
                self.crew.start(name, self.programs[name])
            case Harm.SLEEP:
                self._asleep[name] = self.elapsed_s
                self.crew.put_to_sleep(name)

    def _sample(self) -> None:
        found = usages(program.process.pid for program in self.crew.programs.values())
        at_s = round(self.elapsed_s, 1)
        for program in self.crew.programs.values():
            if (usage := found.get(program.process.pid)) is not None:
                life = self._lives_before + program.lives
                sample = Sample(at_s, program.name, life, **asdict(usage))
                self.curves.samples.append(sample)

    def _finish(self) -> None:
        for name in self._asleep:
            self.crew.wake(name)
        self.crew.dismiss()
        until_ms = self._now_ms() + _END_MS_MAX
        programs = self.crew.programs.values()
        while any(p.is_running for p in programs) and self._now_ms() < until_ms:
            self._hear()
            self.clock.sleep_ms(_TICK_MS)
        self._hear()
        late = [program.name for program in programs if program.is_running]
        self._add(not late, f"not ended when asked to: {', '.join(late)}", "every program ended")
        self._add(not self._ended, "; ".join(self._ended[:3]), "no program ended by itself")
        failures = self.record.failures
        if self.scenario.store_faults:
            # Told that a write's end is not known, a program asks the table and goes on.
            self._add(
                passed=True,
                otherwise="",
                says=f"{len(failures)} tries ended with an error and were settled",
            )
        else:
            first = f"{failures[0].name}: {failures[0].facts['says']}" if failures else ""
            self._add(not failures, f"{len(failures)} tries failed; {first}", "no write failed")
        self.calm()
        self.checks.extend(judge(self.crew, self.record))
        if self.commits_min:
            landed = len(self.record.landed)
            says = f"{landed:,} writes landed, and {self.commits_min:,} were asked for"
            self._add(landed >= self.commits_min, says, says)
        self.checks.extend(lean_checks(self.curves))
        self._save()

    def _add(self, passed: bool, otherwise: str, says: str) -> None:  # noqa: FBT001 - as a sentence
        self.checks.append(Check(passed, says if passed else otherwise))

    def _save(self) -> None:
        save(self.crew.folder, self.scenario.name, self.elapsed_s, self.curves)

    def _now_ms(self) -> int:
        return self.clock.now().monotonic_ms
