"""`tidelock sql`: SQL statements from the command line, a file or a prompt; and `package`."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelock.cli import options
from tidelock.cli.options import option
from tidelock.cli.output import Output
from tidelock.cli.table import plain_value, show_rows
from tidelock.core.errors import InvalidInput, MissingExtra, NotFound, TidelockError
from tidelock.core.formatting import error_facts, kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_PROMPT: Final = "tidelock> "
_MORE: Final = "     ...> "


def sql(
    *,
    execute: Annotated[
        list[str] | None,
        option(
            "--execute -e STATEMENT",
            "A statement, or several separated by semicolons. May be repeated.",
        ),
    ] = None,
    file: Annotated[Path | None, option("--file -f FILE", "A file with statements.")] = None,
    warehouse: Annotated[
        Path,
        option(
            "--warehouse DIR", "The folder of named tables, and of new ones.", show_default=True
        ),
    ] = Path("spark-warehouse"),
    conf: Annotated[
        list[str] | None,
        option(
            "--conf KEY=VALUE", "A Spark setting, such as spark.sql.catalogImplementation=hive."
        ),
    ] = None,
    limit: Annotated[
        int, option("--limit N", "The number of rows of a query to show.", min=1, show_default=True)
    ] = 1000,
    given: options.CommonOptions,
) -> None:
    """Run SQL statements on tables.

    Statements are queries, changes, merges and procedures. A table of the warehouse has the name of
    its folder; any other is tidelock.`PATH`. Without -e and -f, statements are read from the
    terminal, each up to its semicolon, or from a pipe. The first error ends the command, except at
    the prompt.

        tidelock sql -e "SELECT count(*) FROM tidelock.`/lake/orders`"
        tidelock sql --warehouse /lake -f nightly.sql
    """
    output = given.output
    texts = [*(execute or []), *([] if file is None else [_read(file)])]
    if not texts and not sys.stdin.isatty():
        texts = [sys.stdin.read()]
    settings = {**given.settings(), **options.key_values(conf, "--conf")}
    with _session(warehouse, settings) as spark:
        if not texts:
            _prompt_loop(spark, output, limit)
        for text in texts:
            _run(spark, text, output, limit)


def _run(spark: SparkSession, text: str, output: Output, limit: int) -> None:
    from tidelock.spark.session import sql as execute_sql
    from tidelock.spark.sql.statement import split_statements

    for statement in split_statements(text):
        _show(spark, execute_sql(spark, statement), output, limit)


def _show(spark: SparkSession, frame: DataFrame, output: Output, limit: int) -> None:
    from tidelock.spark.sql.errors import run_statement_job

    found = run_statement_job(spark, "the query", frame.limit(limit + 1).toArrow)
    rows = [{name: plain_value(value) for name, value in row.items()} for row in found.to_pylist()]
    show_rows(output, found.column_names, rows, limit)


def _prompt_loop(spark: SparkSession, output: Output, limit: int) -> None:
    """Run statements from the prompt until the input ends or `quit` is entered."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - adds history to the prompt
    pending = ""
    while True:
        try:
            line = input(_MORE if pending else _PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            pending = ""
            sys.stdout.write("\n")
            continue
        if not pending and line.strip().rstrip(";").lower() in ("quit", "exit"):
            return
        pending = f"{pending}\n{line}" if pending else line
        if not pending.rstrip().endswith(";"):
            pending = pending if pending.strip() else ""
            continue
        try:
            _run(spark, pending, output, limit)
        except TidelockError as error:
            if output.as_json:
                output.result(error_facts(kind_of(error), error.message, error.hint))
            else:
                output.remark(error.message, *([f"  {error.hint}"] if error.hint else []))
        pending = ""


@contextlib.contextmanager
def _session(warehouse: Path, settings: dict[str, object]) -> Iterator[SparkSession]:
    try:
        from tidelock.execution.spark.session import local_session
        from tidelock.spark.session import enable
        from tidelock.spark.sql.catalog import register_tables
    except ImportError:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'") from None
    folder = warehouse.resolve()
    spark_settings = {key: str(value) for key, value in settings.items()}
    spark_settings["spark.sql.warehouse.dir"] = str(folder)
    # Spark logs the error of a statement a second time, as a page of JSON.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    spark = local_session("tidelock sql", settings=spark_settings)
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
        raise NotFound(f"--file {file}: not found", hint="check the path") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            f"--file {file}: cannot be read: {error}",
            hint="use a text file in UTF-8 that this user may read",
        ) from error


def package(
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="The zip file to write.", show_default=True)
    ] = Path("tidelock.zip"),
    *,
    as_json: options.Json = False,
) -> None:
    """Write the zip file that Spark ships to the executors.

    The file contains tidelock, for spark-submit. Prints the path of the file.

        spark-submit --py-files "$(tidelock package tidelock.zip)" job.py
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from tidelock.execution.spark.session import write_archive

    if not target.parent.is_dir():
        raise InvalidInput(f"FILE: folder {target.parent} does not exist", hint="create it first")
    written = write_archive(target)
    facts = {"file": str(written), "bytes": written.stat().st_size}
    Output(as_json=as_json).result(facts, str(written))
