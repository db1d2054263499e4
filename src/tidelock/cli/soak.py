"""`tidelock soak`: write for a long time with faults, check everything, and write a report."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import option
from tidelock.cli.output import Output
from tidelock.cli.signals import Stopping
from tidelock.core.errors import InvalidInput
from tidelock.core.system import SeededIds, SystemClock
from tidelock.lock.config import PROVIDER
from tidelock.lock.providers.registry import short_name

if TYPE_CHECKING:
    from tidelock.workload.soak_report import SoakReport


@dataclass(frozen=True, kw_only=True)
class SoakOptions(options.CommonOptions):
    """The options of `tidelock soak`."""

    minutes: Annotated[
        float,
        option("--minutes N", "How long to write, including earlier runs.", show_default=True),
    ] = 10.0
    scenario: Annotated[
        str,
        option(
            "--scenario NAME",
            "high-frequency, mixed-sql, long-stream or chaos.",
            show_default=True,
        ),
    ] = "high-frequency"
    writers: Annotated[
        int | None,
        option("--writers N", "The number of writers of the first role.", min=1, show_default=True),
    ] = None
    store: Annotated[
        str,
        option(
            "--store URI",
            "Location of the table: any URI, or `seaweedfs` (started by `make soak`).",
            show_default=True,
        ),
    ] = ""
    folder: Annotated[
        Path | None,
        option(
            "--folder DIR", "Folder for journals and report; an earlier run in it is continued."
        ),
    ] = None
    seed: Annotated[int, option("--seed N", "Seed for rows and faults.", show_default=True)] = 1
    commits: Annotated[
        int, option("--commits N", "Fail with fewer commits than this.", min=0, show_default=True)
    ] = 0
    lock: Annotated[
        str,
        option(
            "--lock PROVIDER",
            "Take the table's lock for every commit, as with Java writers: `storage`, or the"
            " class of a provider.",
            show_default=True,
        ),
    ] = ""


def soak(*, given: SoakOptions) -> None:
    """Write one table for a long time, and check every row.

    Writes `report.html` and `report.json`. An interrupted soak continues when it is started again
    with the same --folder. Exit status: 0 if every check passed, 1 if one failed.

        tidelock soak --minutes 30 --scenario chaos --folder soak-1
    """
    from tidelock.workload.soak import Soak, open_store
    from tidelock.workload.soak import scenario as scenario_named
    from tidelock.workload.soak_report import SoakReport, template
    from tidelock.workload.table_program import table_pool

    if not 0 < given.minutes <= 60 * 24 * 7:
        raise InvalidInput(
            f"--minutes: expected a number above 0 and up to 10080 (a week), got {given.minutes:g}",
            hint="use a value in that range",
        )
    chosen = scenario_named(given.scenario)
    template("soak.html")  # fail now, not after the run, if the report cannot be written
    output = given.output
    home = given.folder or Path(tempfile.mkdtemp(prefix="tidelock-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    settings = _settings(given)
    seed, faulty = given.seed, chosen.store_faults
    with Stopping(), open_store(given.store, home, settings, faulty=faulty, seed=seed) as target:
        programs = chosen.programs(given.writers)
        with table_pool(home, chosen.spec(target, seed)) as pool:
            ids, clock = SeededIds(seed), SystemClock()
            run = Soak(chosen, pool, programs, clock, ids=ids, on_progress=output.remark)
            run.commits_min, run.stop_store_faults = given.commits, target.stop_faults
            run.resume()
            run.run(given.minutes)
        report = SoakReport(
            checks=run.checks,
            scenario=chosen.name,
            description=chosen.description,
            location=target.description,
            version=version("tidelock"),
            elapsed_s=run.elapsed_s,
            programs={name: role.value for name, role in programs.items()},
            record=run.record,
            measurements=run.measurements,
            requests=dict(target.requests),
            store_faults=dict(target.faults),
            lock=short_name(PROVIDER.value(settings) or ""),
        )
    _write_report(report, home, output)
    raise typer.Exit(0 if report.passed else 1)


def _write_report(report: SoakReport, home: Path, output: Output) -> None:
    from tidelock.workload.soak_report import as_dict, as_page, labeled_numbers

    page, facts = home / "report.html", as_dict(report)
    page.write_text(as_page(report))
    (home / "report.json").write_text(json.dumps(facts, indent=2))
    numbers = ", ".join(f"{value} {label}" for label, value in labeled_numbers(report)[:6])
    output.result(
        {**facts, "report": str(page)},
        *report.check_lines(),
        "",
        Text.assemble(report.verdict(), "  ", numbers),
        f"report: {page}",
    )


def _settings(given: SoakOptions) -> dict[str, str]:
    from tidelock.workload.table_program import LOCK_OPTIONS

    locking = dict(LOCK_OPTIONS) if given.lock else {}
    if given.lock not in ("", "storage"):
        locking[PROVIDER.key] = given.lock
    return {**locking, **{name: str(value) for name, value in given.settings().items()}}
