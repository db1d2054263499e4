"""The types that a user of the package sees: annotations at run time, and a program under mypy.

`tests/integration/test_user_types_in_pyright.py` checks the same program with pyright.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import get_type_hints

import pyarrow as pa

import tidelock as tl
from tidelock.operations.read import HistoryEntry, TableReader
from tidelock.operations.report import WriteReport
from tidelock.services.archive import ArchiveResult
from tidelock.services.runner import ServiceRun
from tidelock.services.savepoint import SavepointInfo
from tidelock.services.ttl import ExpiredPartitions
from tidelock.txn.plans import RollbackResult

SOURCE = Path(__file__).parents[2] / "src"

# pyarrow has no type information; these lines stand for the stubs that users install.
PYARROW_STUBS = """
from typing import Any
class Table:
    num_rows: int
class RecordBatch: ...
class Schema: ...
def __getattr__(name: str) -> Any: ...
"""
PROGRAM = """
import tidelock as tl

with tl.Table.open("s3://lake/orders") as orders:
    reveal_type(orders)
    reveal_type(orders.read())
    reveal_type(orders.schema)
    reveal_type(orders.upsert([{"id": 1}]).rows_inserted)
    reveal_type(orders.compact())
    reveal_type(orders.savepoint().instant)
    reveal_type(orders.app_transaction("pipeline"))
    orders.upsrt([])
with tl.lock("s3://lake/orders") as held:
    reveal_type(held)
"""
_REVEALED = (
    "tidelock.table.Table",
    "pyarrow.Table",
    "pyarrow.Schema",
    "int",
    "tidelock.services.runner.ServiceRun",
    "str",
    "tidelock.txn.app_transactions.AppTransaction | None",
)


def test_package_says_that_it_is_typed() -> None:
    assert files("tidelock").joinpath("py.typed").is_file()


def test_results_are_annotated_with_their_classes() -> None:
    expected = {
        TableReader.read: pa.Table,
        TableReader.changes: pa.Table,
        TableReader.history: tuple[HistoryEntry, ...],
        tl.Table.upsert: WriteReport,
        tl.Table.delete: WriteReport,
        tl.Table.compact: ServiceRun,
        tl.Table.clean: ServiceRun,
        tl.Table.archive: ArchiveResult,
        tl.Table.savepoint: SavepointInfo,
        tl.Table.rollback: tuple[RollbackResult, ...],
        tl.Table.expire_partitions: ExpiredPartitions,
    }
    # Spark is imported for type checkers only.
    names = {"SparkSession": object, "DataFrame": object}
    found = {method: get_type_hints(method, localns=names)["return"] for method in expected}
    assert found == expected


def test_program_of_a_user_is_checked_by_mypy(tmp_path: Path) -> None:
    (tmp_path / "stubs" / "pyarrow").mkdir(parents=True)
    (tmp_path / "stubs" / "pyarrow" / "__init__.pyi").write_text(PYARROW_STUBS)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\n"
        f"mypy_path = {SOURCE}:{tmp_path / 'stubs'}\n"
        "follow_imports = silent\n"
        "ignore_missing_imports = true\n"
        f"cache_dir = {SOURCE.parent / '.cache' / 'mypy-user'}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = done.stdout.replace("builtins.", "").splitlines()
    revealed = [line.split('"')[1] for line in lines if "Revealed" in line]
    assert revealed[: len(_REVEALED)] == list(_REVEALED), done.stdout + done.stderr
    assert revealed[-1].startswith("tidelock.lock."), done.stdout
    assert '"Table" has no attribute "upsrt"' in done.stdout
