"""Apache Hudi's own Java code, its lock and its tables, in separate processes."""

from testkit.java.hudi import Hudi, hudi
from testkit.java.tables import HudiTables, JavaTables, hudi_fleet, hudi_tables, java_tables
from testkit.java.writer import HudiWriter, hudi_writer, s3_environment

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
