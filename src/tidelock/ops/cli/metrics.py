"""`tidelock metrics`: the numbers of tables for Prometheus, from a process that only looks."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer
from rich.text import Text

from tidelock.base.clock import SystemClock
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output
from tidelock.ops.cli.stopping import Stopping
from tidelock.store.uri import open_store

Tables = Annotated[
    list[str],
    typer.Argument(
        metavar="URI...",
        help="Base paths of tables: paths, or URIs with file, s3, gs or abfss.",
        show_default=False,
    ),
]
Port = Annotated[int, typer.Option("--port", metavar="PORT", help="0: any free one.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
Once = Annotated[bool, typer.Option("--once", help="Print the metrics once, and end.")]


def metrics(
    tables: Tables,
    *,
    port: Port = 9410,
    host: Host = "127.0.0.1",
    once: Once = False,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Serve the numbers of tables for Prometheus at /metrics.

    How far the ledger is, who writes and who died, which plans wait and for how long, the lock, and
    the age of the last commit. It looks when it is asked, and changes nothing. Writers tell of
    themselves with `tidelock --metrics-port`.

        tidelock metrics s3://lake/orders s3://lake/customers --port 9410
    """
    from tidelock.ops.telemetry.exporting import served
    from tidelock.ops.telemetry.tables import gauges, table_lines
    from tidelock.ops.ui.watching import TableWatch

    settings = options.given_settings(props, props_file)
    output = Output(as_json=as_json)
    with ExitStack() as stack:
        watches = []
        for uri in tables:
            store = open_store(uri, settings)
            stack.callback(store.close)
            watches.append(TableWatch(store, SystemClock(), settings=settings))
            _ = watches[-1].properties  # a table that is not there is an error now
        if once:
            told = {watch.store.uri: gauges(watch) for watch in watches}
            output.result(told, "\n".join(table_lines(watches)))
            return
        url = stack.enter_context(served(port, host=host, lines=lambda: table_lines(watches)))
        stopping = stack.enter_context(Stopping())
        stopping.note_only()
        says = Text(f"{url}  tells of {len(watches)} tables; Ctrl-C ends it")
        output.result({"event": "serving", "url": url}, says)
        stopping.wait(None)
