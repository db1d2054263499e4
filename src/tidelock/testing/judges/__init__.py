"""Readers of Hudi tables that are not ours: what they say of a table is the measure of what we say.

`HudiRs` is the package `hudi` from PyPI, `HudiJava` is Apache Hudi's Java code without Spark, and
`HudiSpark` is Apache Hudi's data source on Apache Spark. All answer with the same kind of rows.
"""

from tidelock.testing.judges.hudi_java import HudiJava
from tidelock.testing.judges.hudi_rs import HudiRs
from tidelock.testing.judges.rows import Judge, Row, ordered, rows_of

__all__ = ["HudiJava", "HudiRs", "Judge", "Row", "ordered", "rows_of"]
