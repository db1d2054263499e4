"""Apache Hudi's own Java code, run in processes of its own beside ours: its lock and its tables."""

from tidelock.testing.java.hudi import Hudi, hudi
from tidelock.testing.java.tables import (
    HudiTables,
    JavaTables,
    hudi_fleet,
    hudi_tables,
    java_tables,
)
from tidelock.testing.java.writer import HudiWriter, hudi_writer, s3_environment

__all__ = [
    "Hudi",
    "HudiTables",
    "HudiWriter",
    "JavaTables",
    "hudi",
    "hudi_fleet",
    "hudi_tables",
    "hudi_writer",
    "java_tables",
    "s3_environment",
]
