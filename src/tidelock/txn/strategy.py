"""What happens on an overlap, by the names of Hudi's strategies. Pure."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """What happens on an overlap: ours solves it, Hudi's refuse the later writer."""

    SOLVE = "solve"
    SIMPLE = "SimpleConcurrentFileWritesConflictResolutionStrategy"
    BUCKET = "BucketIndexConcurrentFileWritesConflictResolutionStrategy"
    PREFER_WRITER = "PreferWriterConflictResolutionStrategy"
