"""Offsets of a topic: what a checkpoint says, and which ranges the next batch takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.base.errors import ConfigInvalid, DataCorrupt

Offsets = Mapping[int, int]
"""By partition, the offset of the next record to read."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Records of each partition from `start` to `end`, exclusive."""

    start: Offsets
    end: Offsets

    @property
    def count(self) -> int:
        """How many offsets that are; compacted topics have fewer records."""
        return sum(self.end[partition] - first for partition, first in self.start.items())


def offsets_text(topic: str, offsets: Offsets) -> str:
    """Return offsets as Hudi's checkpoints have them: `topic,0:17,1:4`."""
    return ",".join([topic, *(f"{part}:{at}" for part, at in sorted(offsets.items()))])


def parse_offsets(text: str, topic: str) -> dict[int, int]:
    """Return the offsets of a checkpoint. Raises: `ConfigInvalid`."""
    named, *parts = text.split(",")
    try:
        found = {int(part.partition(":")[0]): int(part.partition(":")[2]) for part in parts}
    except ValueError as error:
        raise ConfigInvalid(
            f"{text[:80]!r} is no checkpoint of a topic", hint="write it as topic,0:17,1:4"
        ) from error
    if named != topic:
        raise ConfigInvalid(f"the checkpoint is of the topic {named!r}, not of {topic!r}")
    return found


def starting(
    topic: str, known: Offsets | None, first: Offsets, last: Offsets, *, latest: bool, strict: bool
) -> dict[int, int]:
    """Return where each partition is read from.

    `first` and `last` are what the broker has. A partition that is younger than the checkpoint is
    read from its beginning. With `strict` records that are gone are an error.

    Raises: `DataCorrupt`.
    """
    if known is None:
        return dict(last if latest else first)
    found = {}
    for partition, begin in first.items():
        at = known.get(partition, begin)
        if at > last[partition]:
            raise DataCorrupt(
                f"partition {partition} of the topic {topic} ends at {last[partition]}, before"
                f" {at}, which was read already",
                hint="the topic was made anew; begin it with --checkpoint, or a new writer id",
            )
        if at < begin and strict:
            raise DataCorrupt(
                f"partition {partition} of the topic {topic} begins at {begin}: {begin - at}"
                f" records from {at} on were deleted before they were read",
                hint="set hoodie.streamer.source.kafka.enable.failOnDataLoss=false to go on",
            )
        found[partition] = max(at, begin)
    return found


def ranges(start: Offsets, last: Offsets, limit: int) -> Ranges:
    """Return the next batch: up to `limit` records, shared evenly by the partitions that have some.

    What a partition does not use of its share goes to the others.
    """
    left = {part: last[part] - at for part, at in start.items()}
    taken = dict.fromkeys(start, 0)
    budget = limit
    while budget > 0:
        # Those that got least come first, so that no two differ by more than one record.
        open_ = sorted(
            (part for part in start if taken[part] < left[part]),
            key=lambda part: (taken[part], part),
        )
        if not open_:
            break
        share, extra = divmod(budget, len(open_))
        for place, part in enumerate(open_):
            more = min(left[part] - taken[part], share + (place < extra))
            taken[part] += more
            budget -= more
    return Ranges(start, {part: at + taken[part] for part, at in start.items()})
