"""`tidelock doctor`: say who blocks what on a table and why, and mend what may safely be mended."""

from __future__ import annotations

import typer

from tidelock.base.clock import SystemClock
from tidelock.base.ids import SystemIds
from tidelock.ops.cli import options
from tidelock.ops.cli.doctor import Fix, report
from tidelock.ops.cli.output import Output
from tidelock.store.uri import open_store


def table_doctor(
    uri: options.TableUri,
    *,
    fix: Fix = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Examine a table: who blocks what, and why, with the fix for each.

    Looks at the settings of a writer (--props, --prop), at what writers show of themselves, for
    writes whose writer died, plans that wait or cannot be read, files that no write names, the
    ledger, the lock, what the store promises, and the clocks.

    Tries the store with scratch objects that it removes again. --fix rolls back what the dead left,
    publishes what was decided, deletes what nobody needs and mends the lock; live writers are left
    alone. Ends with 0 when nothing is wrong, otherwise with the code of the first problem: 2
    settings, 7 unreadable, 9 denied, 10 unsafe store, 1 everything else.

        tidelock doctor s3://lake/orders --props writer.properties
    """
    from tidelock.ops.doctor.table_examining import Patient, cure_table, examine_table
    from tidelock.table.properties_file import load_properties

    settings = options.given_settings(props, props_file)
    output = Output(as_json=as_json)
    store = open_store(uri, settings)
    try:
        patient = Patient(store, load_properties(store), settings, SystemClock(), SystemIds())
        examination = examine_table(patient)
        done: list[str] = []
        if fix and examination.cures:
            done = cure_table(examination, patient)
            examination = examine_table(patient)
        report(output, examination, store.uri, done, fixing=fix)
    finally:
        store.close()
    raise typer.Exit(examination.exit_code)
