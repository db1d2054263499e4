"""Commands under spark-submit: the streamer in a cluster's session.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1 \\
        $(python -c "import tidelock.cli.submit as s; print(s.__file__)") \\
        streamer --props orders.properties --source-class JsonKafkaSource ...

The arguments are those of the program `tidelock`.
"""

from __future__ import annotations

from tidelock.cli.main import run

if __name__ == "__main__":
    run()
