"""The oracle: checks a table, or the grants of a lock, against the journals of the programs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib.metadata import version
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from tidelock.core.errors import TidelockError
from tidelock.inspect.validate import validate
from tidelock.storage.config import AWS_ACCESS_KEY, AWS_SECRET_KEY, S3_ENDPOINT, S3_REGION
from tidelock.storage.uri import open_store
from tidelock.workload.journal import FleetRecord, ProgramEvent
from tidelock.workload.lock_program import LockEvent
from tidelock.workload.report import Check
from tidelock.workload.steps import FleetRow, State, Step, StepGenerator, differences
from tidelock.workload.table_program import Role, TableFleetSpec, TablePool
from tidelock.workload.table_writers import SCHEMA, rows_in

_SHOWN_MAX = 3


def check_table(pool: TablePool, record: FleetRecord) -> Iterator[Check]:
    """Check the table of a fleet after its programs have ended."""
    spec = pool.spec
    with closing(spec.open()) as table:
        rows = rows_in(table.read(columns=SCHEMA.names))
        for name, applied in table.writer().transactions.ledger.refresh().app_transactions.items():
            # The last step of a program that was killed before it could record it.
            record.committed.setdefault((name, applied.app_transaction.version), applied.completion)
    yield _no_gaps(record)
    yield _consistent_reads(record)
    expected = record.expected(_step_finder(spec.generator, pool))
    yield _same_rows(expected, rows, steps=len(record.committed))
    yield _readable_by_hudi(spec, expected)
    yield _valid(spec)


def _step_finder(generator: StepGenerator, pool: TablePool) -> Callable[[str, int], Step]:
    """Return the function from program name and step number to the step."""
    sql = {program.name for program in pool.programs.values() if program.role is Role.SQL}

    def step_of(name: str, step: int) -> Step:
        of = generator.statement_of if name in sql else generator.upsert_of
        return of(name, step)

    return step_of


def _no_gaps(record: FleetRecord) -> Check:
    gaps = record.gaps()
    message = f"{len(record.committed)} steps committed, none of them twice, none skipped"
    passed = bool(record.committed) and not gaps
    return Check(passed, "; ".join(gaps[:_SHOWN_MAX]) or message, len(gaps))


def _consistent_reads(record: FleetRecord) -> Check:
    wrong = record.inconsistent_reads
    if not record.reads and not wrong:
        return Check(None, "no program read the table during the run")
    message = (
        f"{record.reads} reads during the run saw each key once, and no row lost or older than"
        f" before; {record.compared_reads} of them matched the previous read plus the changes since"
    )
    if record.expired_reads:
        message += f"; {record.expired_reads} more found that a clean had removed their files"
    if wrong:
        message = f"{len(wrong)} of {record.reads} reads were inconsistent: {wrong[0]}"
    return Check(not wrong, message, len(wrong))


def _same_rows(expected: State, rows: list[FleetRow], *, steps: int) -> Check:
    wrong = differences(expected, rows)
    if wrong:
        message = f"the table has {len(wrong)} wrong rows: {'; '.join(wrong[:_SHOWN_MAX])}"
        return Check(passed=False, message=message, violations=len(wrong))
    rows_message = f"the table has exactly the {len(expected)} rows"
    return Check(passed=True, message=f"{rows_message} that {steps} steps in ledger order produce")


def _readable_by_hudi(spec: TableFleetSpec, expected: State) -> Check:
    if importlib.util.find_spec("hudi") is None:
        return Check(None, "not read with Apache Hudi's own reader (pip install hudi)")
    from hudi import HudiReadOptions, HudiTableBuilder

    reader = f"Apache Hudi's own reader (hudi {version('hudi')})"
    try:
        builder = HudiTableBuilder.from_base_uri(spec.uri).with_storage_options(
            _storage_options(spec.settings)
        )
        batches = builder.build().read(HudiReadOptions())
    except Exception as error:  # noqa: BLE001 - the package raises errors of many types
        return Check(passed=False, message=f"{reader} cannot read the table: {error}")
    rows = [row for batch in batches for row in rows_in(pa.Table.from_batches([batch]))]
    wrong = differences(expected, rows)
    if wrong:
        message = f"{reader} reads {len(wrong)} wrong rows: {wrong[0]}"
        return Check(passed=False, message=message, violations=len(wrong))
    return Check(passed=True, message=f"{reader} reads the same rows")


def _storage_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the store by the names that the package `hudi` uses."""
    names = {
        S3_ENDPOINT.key: "AWS_ENDPOINT",
        S3_REGION.key: "AWS_REGION",
        AWS_ACCESS_KEY.key: "AWS_ACCESS_KEY_ID",
        AWS_SECRET_KEY.key: "AWS_SECRET_ACCESS_KEY",
    }
    found = {names[key]: value for key, value in settings.items() if key in names}
    plain = found.get("AWS_ENDPOINT", "").startswith("http://")
    return {**found, "AWS_ALLOW_HTTP": "true"} if plain else found


def _valid(spec: TableFleetSpec) -> Check:
    store = open_store(spec.uri, spec.settings)
    try:
        found = validate(store)
    except TidelockError as error:
        return Check(passed=False, message=f"the table cannot be validated: {error}")
    finally:
        store.close()
    message = "every file, log block, key and timeline entry of the table is valid"
    if found.problems:
        first = found.problems[0]
        message = f"{len(found.problems)} problems in the table: {first.object} {first.what}"
    return Check(found.is_consistent, message, len(found.problems))


class HeldSpan(NamedTuple):
    """The period in which the lock client of a holder reported the lock as held."""

    name: str
    token: int
    from_ms: int
    to_ms: int


def check_lock(events: Sequence[ProgramEvent], *, fenced: int) -> list[Check]:
    """Check the guarantees of the lock against the journals and the value of the fenced counter."""
    ordered = sorted(events, key=lambda event: event.at_ms)
    return [
        _no_lost_increment(ordered, fenced),
        _increasing_tokens(ordered),
        _one_holder(ordered),
        _no_errors(ordered),
    ]


def held_spans(events: Sequence[ProgramEvent]) -> list[HeldSpan]:
    """Return the span of every grant, in the order of the grants."""
    found: dict[tuple[str, int], HeldSpan] = {}
    for event in events:
        token = event.facts.get("token", 0)
        key = (event.name, token)
        if event.kind == LockEvent.GRANTED:
            found[key] = HeldSpan(event.name, token, event.at_ms, event.at_ms)
        elif event.kind == LockEvent.BELIEVES and key in found:
            began = found[key].from_ms
            found[key] = HeldSpan(event.name, token, began, max(began, event.at_ms))
    return sorted(found.values(), key=lambda span: span.from_ms)


def _count(events: Sequence[ProgramEvent], kind: LockEvent) -> int:
    return sum(event.kind == kind for event in events)


def _no_lost_increment(events: Sequence[ProgramEvent], fenced: int) -> Check:
    """Check that the counter has every acknowledged increment and nothing else.

    A program killed between its write and its journal entry may have added one more.
    """
    acknowledged = _count(events, LockEvent.WROTE)
    answered = acknowledged + _count(events, LockEvent.REFUSED)
    most = acknowledged + max(0, _count(events, LockEvent.WRITING) - answered)
    message = f"the fenced counter is {fenced} after {acknowledged} acknowledged increments"
    return Check(acknowledged <= fenced <= most, message)


def _increasing_tokens(events: Sequence[ProgramEvent]) -> Check:
    tokens = [event.facts["token"] for event in events if event.kind == LockEvent.GRANTED]
    increasing = all(earlier < later for earlier, later in pairwise(tokens))
    first, last = (tokens[0], tokens[-1]) if tokens else (0, 0)
    message = f"{len(tokens)} tokens were granted, {first} to {last}, in increasing order"
    return Check(bool(tokens) and increasing, message)


def _one_holder(events: Sequence[ProgramEvent]) -> Check:
    for earlier, later in pairwise(held_spans(events)):
        if later.from_ms < earlier.to_ms:
            message = (
                f"{earlier.name} (token {earlier.token}) and {later.name} (token {later.token})"
                f" both held the lock for {earlier.to_ms - later.from_ms} ms"
            )
            return Check(passed=False, message=message)
    return Check(passed=True, message="no two writers held the lock at the same time")


def _no_errors(events: Sequence[ProgramEvent]) -> Check:
    failed = next((event for event in events if event.kind == LockEvent.FAILED), None)
    if failed is not None:
        return Check(passed=False, message=f"{failed.name} failed: {failed.facts.get('says', '')}")
    return Check(passed=True, message="no writer failed")
