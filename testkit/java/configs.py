"""The list of Hudi's configuration keys, read from Hudi's classes.

`python -m testkit.java.configs > FILE` prints each key that Hudi's Spark bundle declares as a line
of JSON: its name, its aliases, its default (null for none) and the class that declares it. The list
used by the tests was generated with this command.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from testkit.java.hudi import compiled
from testkit.servers.cache import ToolCache
from testkit.servers.maven import Coordinates, fetch_jars
from testkit.servers.unavailable import ServerUnavailable

VERSION = "1.2.0"

_BUNDLE = Coordinates("org.apache.hudi", "hudi-spark3.5-bundle_2.12", VERSION, excluded=("*:*",))
# The keys of the data source are in Scala objects, so the Scala version of the bundle is needed.
_SCALA = Coordinates("org.scala-lang", "scala-library", "2.12.18")
_PROGRAM = Path(__file__).parent / "HudiConfigs.java"


def settings_of_hudi(cache: ToolCache | None = None) -> list[str]:
    """Return the lines. Raises: `ServerUnavailable` without Java, Maven, PySpark or Hudi's jar."""
    classes, scala, bundle = install_configs(cache or ToolCache.default())
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ServerUnavailable(
            "PySpark", reason="it is not installed", how_to_install="pip install pyspark"
        )
    path = [classes, scala, bundle, Path(spark.origin).parent / "jars" / "*"]
    command = ["java", "-Xmx512m", "-cp", ":".join(map(str, path)), "HudiConfigs", str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def install_configs(cache: ToolCache) -> tuple[Path, Path, Path]:
    """Return the compiled program, Scala's library and Hudi's bundle; install what is missing."""
    (bundle,) = fetch_jars([_BUNDLE], cache)
    (scala,) = fetch_jars([_SCALA], cache)
    return compiled("hudi-configs", (bundle,), (_PROGRAM,), cache), scala, bundle


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in settings_of_hudi()))
