"""`tidelock package`: the package as a file for `spark-submit --py-files`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tidelock.base.errors import InvalidInput, MissingExtra
from tidelock.ops.cli import options
from tidelock.ops.cli.output import Output

Target = Annotated[
    Path, typer.Argument(metavar="FILE", help="The zip file to write.", show_default=True)
]


def package(target: Target = Path("tidelock.zip"), *, as_json: options.Json = False) -> None:
    """Write tidelock into a zip file that spark-submit ships to the executors.

    spark-submit --py-files "$(tidelock package tidelock.zip)" job.py
    """
    if find_spec("pyspark") is None:
        raise MissingExtra("Spark is not installed", hint="pip install 'tidelock[spark]'")
    from tidelock.engine.spark.shipping import write_archive

    if not target.parent.is_dir():
        raise InvalidInput(f"{target.parent} is no folder", hint="make it first")
    written = write_archive(target)
    facts = {"file": str(written), "bytes": written.stat().st_size}
    Output(as_json=as_json).result(facts, str(written))
