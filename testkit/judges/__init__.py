"""Independent readers of Hudi tables, the reference for ours.

`HudiRs` is the package `hudi` from PyPI, `HudiJava` is Apache Hudi's Java code without Spark, and
`HudiSpark` is Apache Hudi's data source on Apache Spark. All return rows in the same form.
"""

from testkit.judges.hudi_java import HudiJava
from testkit.judges.hudi_rs import HudiRs
from testkit.judges.rows import Judge, Row, ordered, rows_of

__all__ = ["HudiJava", "HudiRs", "Judge", "Row", "ordered", "rows_of"]
