"""Apache Hudi's own Java lock, run in processes of their own beside ours."""

from tidelock.testing.java.hudi import Hudi, hudi
from tidelock.testing.java.writer import HudiWriter, hudi_writer

__all__ = ["Hudi", "HudiWriter", "hudi", "hudi_writer"]
