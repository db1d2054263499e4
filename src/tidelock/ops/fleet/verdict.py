"""The judgement of a fleet: what its table holds against what its journals say."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version

import pyarrow as pa

from tidelock.base.errors import TidelockError
from tidelock.ops.fleet.articles import Articles
from tidelock.ops.fleet.crew import Crew
from tidelock.ops.fleet.hands import SCHEMA, rows_in
from tidelock.ops.fleet.member import Role
from tidelock.ops.fleet.record import Record
from tidelock.ops.fleet.steps import Row, State, Step, Terms, differences
from tidelock.ops.validate.validating import validate
from tidelock.store.uri import open_store

_SHOWN_MAX = 3


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true, and whether it is. None: it could not be looked at."""

    passed: bool | None
    says: str
    violations: int = 0
    """How many rows, reads, steps or objects are not as they must be."""


def judge(crew: Crew[Articles, Role], record: Record) -> Iterator[Check]:
    """Look at everything, once the programs have ended."""
    articles = crew.articles
    with closing(articles.open()) as table:
        ours = rows_in(table.read(columns=SCHEMA.names))
        for name, applied in table.writer().transactions.ledger.refresh().marks.items():
            # The last words of a program that was killed and did not come back.
            record.landed.setdefault((name, applied.mark.version), applied.completion)
    yield _unbroken(record)
    yield _read_well(record)
    expected = record.expected(step_finder(articles.terms, crew))
    yield _compared("the table holds", expected, ours, steps=len(record.landed))
    yield _read_by_hudi(articles, expected)
    yield _validated(articles)


def step_finder(terms: Terms, crew: Crew[Articles, Role]) -> StepFinder:
    """Return who knows what a program did as a step."""
    sql = frozenset(p.name for p in crew.programs.values() if p.role is Role.SQL)
    return StepFinder(terms, sql)


@dataclass(frozen=True, slots=True)
class StepFinder:
    """Knows what each program did as each step."""

    terms: Terms
    sql: frozenset[str]

    def __call__(self, name: str, step: int) -> Step:
        """Return step number `step` of a program."""
        of = self.terms.statement_of if name in self.sql else self.terms.upsert_of
        return of(name, step)


def _unbroken(record: Record) -> Check:
    gaps = record.gaps()
    says = f"{len(record.landed)} steps landed, none of them twice, none left out"
    passed = bool(record.landed) and not gaps
    return Check(passed, "; ".join(gaps[:_SHOWN_MAX]) or says, len(gaps))


def _read_well(record: Record) -> Check:
    broken = record.broken_reads
    if not record.reads and not broken:
        return Check(None, "nobody read the table meanwhile")
    says = (
        f"{record.reads} reads meanwhile saw each key once, no row lost or older than before;"
        f" {record.summed} times the changes since the last read made up the difference exactly"
    )
    if record.late:
        says += f"; {record.late} more came after a clean had removed their files"
    if broken:
        says = f"{len(broken)} of {record.reads} reads saw what cannot be: {broken[0]}"
    return Check(not broken, says, len(broken))


def _compared(what: str, expected: State, found: list[Row], *, steps: int) -> Check:
    told = differences(expected, found)
    if told:
        says = f"{what} {len(told)} wrong rows: {'; '.join(told[:_SHOWN_MAX])}"
        return Check(passed=False, says=says, violations=len(told))
    says = f"{what} exactly the {len(expected)} rows that {steps} steps in ledger order give"
    return Check(passed=True, says=says)


def _read_by_hudi(articles: Articles, expected: State) -> Check:
    if importlib.util.find_spec("hudi") is None:
        return Check(None, "not asked: the package `hudi` (pip install hudi)")
    from hudi import HudiReadOptions, HudiTableBuilder

    try:
        opened = HudiTableBuilder.from_base_uri(articles.uri).with_storage_options(
            _storage_options(articles.settings)
        )
        batches = opened.build().read(HudiReadOptions())
    except Exception as error:  # noqa: BLE001 - whatever it says is what there is to tell
        return Check(
            passed=False, says=f"the package hudi {version('hudi')} cannot read it: {error}"
        )
    rows = [row for batch in batches for row in rows_in(pa.Table.from_batches([batch]))]
    told = differences(expected, rows)
    if told:
        says = f"hudi {version('hudi')} reads {len(told)} wrong rows: {told[0]}"
        return Check(passed=False, says=says, violations=len(told))
    return Check(
        passed=True, says=f"Apache Hudi's own reader (hudi {version('hudi')}) reads the same rows"
    )


def _storage_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the store's settings by the names that the package `hudi` has for them."""
    names = {
        "tidelock.s3.endpoint": "AWS_ENDPOINT",
        "tidelock.s3.region": "AWS_REGION",
        "hoodie.aws.access.key": "AWS_ACCESS_KEY_ID",
        "hoodie.aws.secret.key": "AWS_SECRET_ACCESS_KEY",
    }
    found = {names[key]: value for key, value in settings.items() if key in names}
    plain = found.get("AWS_ENDPOINT", "").startswith("http://")
    return {**found, "AWS_ALLOW_HTTP": "true"} if plain else found


def _validated(articles: Articles) -> Check:
    store = open_store(articles.uri, articles.settings)
    try:
        found = validate(store)
    except TidelockError as error:
        return Check(passed=False, says=f"the table cannot be validated: {error}")
    finally:
        store.close()
    says = "every file, log block, key and timeline entry of the table is sound"
    if found.problems:
        worst = found.problems[0]
        says = f"{len(found.problems)} problems of the table: {worst.object} {worst.what}"
    return Check(found.is_consistent, says, len(found.problems))
