"""`tidelock sql`: statements on tables, from the command line, a file, or a prompt."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelock.base.errors import InvalidInput, MissingExtra, NotFound, TidelockError
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output, columns, error_facts, kind_of
from tidelock.ops.cli.table_show import cell, plain_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Execute = Annotated[
    list[str] | None,
    typer.Option(
        "--execute",
        "-e",
        metavar="STATEMENT",
        help="A statement, or several with semicolons between. May be repeated.",
        show_default=False,
    ),
]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="A file of statements.", show_default=False),
]
Warehouse = Annotated[
    Path,
    typer.Option(
        "--warehouse",
        metavar="DIR",
        help="The folder whose tables have names, and where new ones are made.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark's, such as spark.sql.catalogImplementation=hive.",
        show_default=False,
    ),
]
RowLimit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="How many rows of a query are shown.")
]

_PROMPT: Final = "tidelock> "
_MORE: Final = "     ...> "


def sql(
    *,
    execute: Execute = None,
    file: File = None,
    warehouse: Warehouse = Path("spark-warehouse"),
    conf: Conf = None,
    limit: RowLimit = 1000,
    props: options.Props = None,
    props_file: options.PropsFile = None,
    as_json: options.Json = False,
) -> None:
    """Run SQL statements on tables: queries, changes, merges, and procedures.

    Tables of the warehouse have their folder's name; any other is tidelock.`PATH`. Without -e and
    -f statements are read from the terminal, each up to its semicolon, or from a pipe. The first
    wrong one ends the command, except at the prompt.

        tidelock sql -e "SELECT count(*) FROM tidelock.`/lake/orders`"
        tidelock sql --warehouse /lake -f nightly.sql
    """
    output = Output(as_json=as_json)
    texts = [*(execute or []), *([] if file is None else [_read(file)])]
    if not texts and not sys.stdin.isatty():
        texts = [sys.stdin.read()]
    settings = {**options.given_settings(props, props_file), **_pairs(conf)}
    with _session(warehouse, settings) as spark:
        if not texts:
            _converse(spark, output, limit)
        for text in texts:
            _run(spark, text, output, limit)


def _run(spark: SparkSession, text: str, output: Output, limit: int) -> None:
    """Carry out the statements of a text, one after the other."""
    from tidelock.pipeline.sql.session import sql as carried_out
    from tidelock.pipeline.sql.statement import split

    for statement in split(text):
        _show(spark, carried_out(spark, statement), output, limit)


def _show(spark: SparkSession, frame: DataFrame, output: Output, limit: int) -> None:
    from tidelock.pipeline.sql.failing import carried_out

    found = carried_out(spark, "the query", frame.limit(limit + 1).toArrow)
    rows = [{name: plain_value(value) for name, value in row.items()} for row in found.to_pylist()]
    if output.as_json:
        for row in rows[:limit]:
            output.result(row)
        return
    if found.num_columns:
        cells = [[cell(value) for value in row.values()] for row in rows[:limit]]
        output.result({}, *columns([cell(name) for name in found.column_names], cells))
    if len(rows) > limit:
        output.remark(f"only the first {limit:,} rows; --limit shows more")


def _converse(spark: SparkSession, output: Output, limit: int) -> None:
    """Carry out what is typed, until the input ends or somebody says quit."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives the prompt its history
    held = ""
    while True:
        try:
            line = input(_MORE if held else _PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            held = ""
            sys.stdout.write("\n")
            continue
        if not held and line.strip().rstrip(";").lower() in ("quit", "exit"):
            return
        held = f"{held}\n{line}" if held else line
        if not held.rstrip().endswith(";"):
            held = held if held.strip() else ""
            continue
        try:
            _run(spark, held, output, limit)
        except TidelockError as error:
            if output.as_json:
                output.result(error_facts(kind_of(error), error.message, error.hint))
            else:
                output.remark(error.message, *([f"  {error.hint}"] if error.hint else []))
        held = ""


@contextlib.contextmanager
def _session(warehouse: Path, settings: dict[str, object]) -> Iterator[SparkSession]:
    try:
        from tidelock.engine.spark.session import local_session
        from tidelock.pipeline.datasource.hook import enable
        from tidelock.pipeline.sql.warehouse import register_tables
    except ImportError:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'") from None
    folder = warehouse.resolve()
    chosen = {key: str(value) for key, value in settings.items()}
    chosen["spark.sql.warehouse.dir"] = str(folder)
    # Spark says what is wrong with a statement a second time, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    spark = local_session("tidelock sql", settings=chosen)
    try:
        spark.sparkContext.setLogLevel("OFF")
        enable(spark)
        register_tables(spark, folder)
        yield spark
    finally:
        spark.stop()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error


def _pairs(given: list[str] | None) -> dict[str, str]:
    found = {}
    for each in given or []:
        key, sign, value = each.partition("=")
        if not sign or not key:
            raise InvalidInput(f"{each!r} is no setting", hint="--conf KEY=VALUE")
        found[key] = value
    return found
