"""Offsets of a Kafka topic: checkpoint format, start offsets and ranges of a batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelock.core.errors import ConfigInvalid, DataCorrupt

Offsets = Mapping[int, int]
"""The offset of the next record to read, by partition."""


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Records of each partition from `start` to `end`, exclusive."""

    start: Offsets
    end: Offsets

    @property
    def count(self) -> int:
        """The number of offsets; a compacted topic has fewer records."""
        return sum(self.end[partition] - first for partition, first in self.start.items())


def offsets_text(topic: str, offsets: Offsets) -> str:
    """Return offsets in the format of Hudi's checkpoints: `topic,0:17,1:4`."""
    return ",".join([topic, *(f"{part}:{offset}" for part, offset in sorted(offsets.items()))])


def parse_offsets(text: str, topic: str) -> dict[int, int]:
    """Return the offsets of a checkpoint. Raises: `ConfigInvalid`."""
    named, *parts = text.split(",")
    try:
        found = {int(part.partition(":")[0]): int(part.partition(":")[2]) for part in parts}
    except ValueError as error:
        raise ConfigInvalid(
            f"checkpoint: expected offsets such as topic,0:17,1:4, got {text[:80]!r}",
            hint="use the topic, then partition:offset for each partition",
        ) from error
    if named != topic:
        raise ConfigInvalid(
            f"checkpoint: expected offsets of topic {topic!r}, got {named!r}",
            hint="use a checkpoint of this topic, or --ignore-checkpoint",
        )
    return found


def start_offsets(
    topic: str, known: Offsets | None, first: Offsets, last: Offsets, *, latest: bool, strict: bool
) -> dict[int, int]:
    """Return the start offset of each partition.

    `first` and `last` are the current bounds at the broker. A partition that is not in the
    checkpoint is read from its beginning. With `strict`, deleted unread records are an error.

    Raises: `DataCorrupt`.
    """
    if known is None:
        return dict(last if latest else first)
    found = {}
    for partition, begin in first.items():
        offset = known.get(partition, begin)
        if offset > last[partition]:
            raise DataCorrupt(
                f"topic {topic}, partition {partition}: the end offset {last[partition]} is before"
                f" {offset}, which has been read",
                hint="if the topic was recreated, use --checkpoint or a new writer id",
            )
        if offset < begin and strict:
            raise DataCorrupt(
                f"topic {topic}, partition {partition}: {begin - offset} records from {offset} on"
                f" were deleted before they were read; the first offset is {begin}",
                hint="set hoodie.streamer.source.kafka.enable.failOnDataLoss=false to skip them",
            )
        found[partition] = max(offset, begin)
    return found


def offset_ranges(start: Offsets, last: Offsets, limit: int) -> OffsetRanges:
    """Return the next batch: up to `limit` records, shared evenly by the partitions with records.

    The unused share of a partition goes to the others.
    """
    available = {part: last[part] - offset for part, offset in start.items()}
    counts = dict.fromkeys(start, 0)
    budget = limit
    while budget > 0:
        # Partitions with the fewest records come first, so counts differ by at most one record.
        remaining = sorted(
            (part for part in start if counts[part] < available[part]),
            key=lambda part: (counts[part], part),
        )
        if not remaining:
            break
        share, extra = divmod(budget, len(remaining))
        for index, part in enumerate(remaining):
            more = min(available[part] - counts[part], share + (index < extra))
            counts[part] += more
            budget -= more
    return OffsetRanges(start, {part: offset + counts[part] for part, offset in start.items()})
