"""`tidelock soak`: write for a long time, do harm, check everything, and write a report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.base.errors import InvalidInput
from tidelock.base.ids import SeededIds
from tidelock.lock.config import PROVIDER
from tidelock.lockproviders.registry import short_name
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.stopping import Stopping

if TYPE_CHECKING:
    from tidelock.ops.soak.report import Told

Minutes = Annotated[
    float, typer.Option("--minutes", metavar="N", help="How long to write, earlier runs included.")
]
ScenarioName = Annotated[
    str,
    typer.Option("--scenario", help="high-frequency, mixed-sql, long-stream or chaos."),
]
Writers = Annotated[
    int | None,
    typer.Option("--writers", metavar="N", min=1, help="How many writers of the first kind."),
]
Store = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URI",
        help="Where the table goes: any URI, or `seaweedfs` for a server of its own.",
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder", help="Where journals and report go; what is there already is continued."
    ),
]
Commits = Annotated[
    int,
    typer.Option("--commits", metavar="N", min=0, help="Fail with fewer writes than this."),
]
Lock = Annotated[
    str,
    typer.Option(
        "--lock",
        metavar="PROVIDER",
        help="Take the table's lock around every commit, as beside Java's writers: `storage`,"
        " or the class of a provider.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Decides rows and faults.")]


def soak(
    *,
    minutes: Minutes = 10.0,
    scenario: ScenarioName = "high-frequency",
    writers: Writers = None,
    store: Store = "",
    folder: Folder = None,
    seed: Seed = 1,
    commits: Commits = 0,
    lock: Lock = "",
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Let programs write one table for a long time, and prove that nothing went wrong.

    Writes `report.html` and `report.json`. Interrupted, it goes on where it was when it is started
    with the same --folder. Ends with 0 if every check passed, 1 if not.

        tidelock soak --minutes 30 --scenario chaos --folder soak-1
    """
    from tidelock.ops.fleet.articles import BRISK, Articles
    from tidelock.ops.fleet.crew import Crew
    from tidelock.ops.fleet.member import Role
    from tidelock.ops.fleet.steps import Terms
    from tidelock.ops.soak.place import opened
    from tidelock.ops.soak.report import Told
    from tidelock.ops.soak.scenario import scenario as named
    from tidelock.ops.soak.soak import Soak

    if not 0 < minutes <= 60 * 24 * 7:
        raise InvalidInput(f"--minutes {minutes} cannot be", hint="use up to a week")
    chosen = named(scenario)
    output = Output(as_json=as_json)
    home = folder or Path(tempfile.mkdtemp(prefix="tidelock-soak-"))
    home.mkdir(parents=True, exist_ok=True)
    given = _settings(props, props_file, lock)
    with Stopping(), opened(store, home, given, faulty=chosen.store_faults, seed=seed) as place:
        articles = Articles(
            place.uri,
            Terms(seed=seed, keys=chosen.keys, rows=chosen.rows),
            chosen.table_type,
            place.settings,
            {**BRISK, **chosen.options},
            chosen.pause_ms,
            reader_pause_ms=chosen.reader_pause_ms,
            deletes=Role.SQL in chosen.writers,
        )
        with Crew[Articles, Role](home, articles) as crew:
            programs = chosen.programs(writers)
            run = Soak(chosen, crew, programs, SystemClock(), SeededIds(seed), output.remark)
            run.commits_min, run.calm = commits, place.calm
            run.resume()
            run.run(minutes)
        told = Told(
            chosen.name,
            chosen.says,
            place.says,
            version("tidelock"),
            run.elapsed_s,
            {name: role.value for name, role in programs.items()},
            run.checks,
            run.record,
            run.curves,
            dict(place.requests),
            dict(place.faults),
            short_name(PROVIDER.value(given) or ""),
        )
    _tell(told, home, output)
    raise typer.Exit(0 if told.passed else 1)


def _tell(told: Told, home: Path, output: Output) -> None:
    """Write the report, and say how it went."""
    from tidelock.ops.soak.page import as_page
    from tidelock.ops.soak.report import as_facts

    (home / "report.html").write_text(as_page(told))
    (home / "report.json").write_text(json.dumps(as_facts(told), indent=2))
    marks = {
        True: ("  ok    ", "green"),
        False: ("  WRONG ", "bold red"),
        None: ("  -     ", "dim"),
    }
    lines = [Text.assemble(marks[check.passed], check.says) for check in told.checks]
    verdict = Text("PASS" if told.passed else "FAIL")
    verdict.stylize("bold green" if told.passed else "bold red")
    numbers = ", ".join(f"{value} {name}" for name, value in list(told.numbers.items())[:6])
    report = f"report: {home / 'report.html'}"
    output.result(
        {**as_facts(told), "report": str(home / "report.html")},
        *lines,
        "",
        Text.assemble(verdict, "  ", numbers),
        report,
    )


def _settings(props: Sequence[str] | None, props_file: str | None, lock: str) -> dict[str, str]:
    from tidelock.ops.fleet.articles import LOCKED

    given = options.given_settings(props, props_file)
    chosen = dict(LOCKED) if lock else {}
    if lock not in ("", "storage"):
        chosen[PROVIDER.key] = lock
    return {**chosen, **{name: str(value) for name, value in given.items()}}
