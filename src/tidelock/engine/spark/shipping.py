"""The package itself, as one file that Spark carries to its executors.

A cluster's machines need Python and the libraries (pyarrow, fastavro and so on); tidelock comes
with the program, so that driver and executors always run the same version of it.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tidelock.base.errors import InvalidInput
from tidelock.engine.spark.session import is_local_master

ARCHIVE: Final = "tidelock.zip"
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the archive, so that the same package gives the same bytes."""

_shipped: set[str] = set()


def package_folder() -> Path | None:
    """Return where the package's files are; None if it is imported from an archive itself."""
    folder = Path(__file__).parents[2]
    return folder if folder.is_dir() else None


def write_archive(target: Path) -> Path:
    """Write the package into a zip file that Python can import from; return it.

    Raises: `InvalidInput` when this process itself imports it from one.
    """
    folder = package_folder()
    if folder is None:
        raise InvalidInput(
            f"tidelock is imported from an archive: {__file__}", hint="that is the file to ship"
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix not in (".pyc", ".pyo"):
                name = f"{folder.name}/{file.relative_to(folder).as_posix()}"
                archive.writestr(
                    zipfile.ZipInfo(name, _WHEN), file.read_bytes(), zipfile.ZIP_DEFLATED
                )
    return target


def ship(spark: SparkSession) -> None:
    """Give a cluster's executors this version of the package, once for each application.

    Where executors are in this process, or the package came by `--py-files`, nothing is to do.
    """
    context = spark.sparkContext
    if is_local_master(spark) or context.applicationId in _shipped or package_folder() is None:
        return
    _shipped.add(context.applicationId)
    # Executors that start later fetch it too, so it stays as long as the driver.
    folder = tempfile.mkdtemp(prefix="tidelock-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    context.addPyFile(str(write_archive(Path(folder) / ARCHIVE)))
