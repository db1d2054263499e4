"""The list of Hudi's settings, taken from Hudi itself.

`python -m tidelock.testing.java.configs > FILE` prints each setting that Hudi's Spark bundle
declares as a line of JSON: its name, its other names, its default (null for none) and the class
that declares it. The list in the tests is made so.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tidelock.testing.java.hudi import compiled
from tidelock.testing.servers.cache import ToolCache
from tidelock.testing.servers.maven import Coordinates, fetch_jars
from tidelock.testing.servers.unavailable import ServerUnavailable

VERSION = "1.2.0"

_BUNDLE = Coordinates("org.apache.hudi", "hudi-spark3.5-bundle_2.12", VERSION, excluded=("*:*",))
# The data source's settings are in Scala objects, of the Scala that the bundle was built with.
_SCALA = Coordinates("org.scala-lang", "scala-library", "2.12.18")
_PROGRAM = Path(__file__).parent / "HudiConfigs.java"


def settings_of_hudi(cache: ToolCache | None = None) -> list[str]:
    """Return the lines. Raises ServerUnavailable without Java, Maven, PySpark or Hudi's jar."""
    kept = cache or ToolCache.default()
    (bundle,) = fetch_jars([_BUNDLE], kept)
    (scala,) = fetch_jars([_SCALA], kept)
    classes = compiled("hudi-configs", (bundle,), (_PROGRAM,), kept)
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ServerUnavailable(
            "PySpark", reason="it is not installed", how_to_install="pip install pyspark"
        )
    path = [classes, scala, bundle, Path(spark.origin).parent / "jars" / "*"]
    command = ["java", "-Xmx512m", "-cp", ":".join(map(str, path)), "HudiConfigs", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in settings_of_hudi()))
