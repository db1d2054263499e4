"""Whether a key is in a partition twice, in bounded memory however large the partition is.

Up to a limit the keys of a partition are held and counted at once. Beyond it they are counted in
several passes over the key column, each for one range of keys; a sample says where to cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.base.limits import VALIDATED_KEYS_MAX

_SAMPLE_STRIDE: Final = 997
"""One of so many keys is kept to find the cuts: few, at an interval that keys hardly have."""


class PartitionKeys:
    """The keys of one partition, as its rows go by."""

    def __init__(self, *, held_max: int = VALIDATED_KEYS_MAX) -> None:
        """Hold at most `held_max` keys at a time."""
        self._held_max = held_max
        self._held: list[pa.Array] = []
        self._sample: list[str] = []
        self._count = 0

    def add(self, keys: pa.ChunkedArray) -> None:
        """Note the keys of a batch."""
        stride = min(_SAMPLE_STRIDE, max(1, self._held_max // 4))
        first = -self._count % stride
        picked = keys.take(pa.array(range(first, len(keys), stride), pa.int64()))
        self._sample += [key for key in picked.to_pylist() if key is not None]
        self._count += len(keys)
        if self._count <= self._held_max:
            self._held += keys.chunks
        else:
            self._held.clear()

    def twice(self, again: Callable[[], Iterable[pa.ChunkedArray]]) -> Iterator[str]:
        """Yield each key that was added more than once; `again` reads all of them anew."""
        if self._count <= self._held_max:
            yield from _twice(self._held)
            return
        for low, high in self._ranges():
            kept: list[pa.Array] = []
            for keys in again():
                kept += keys.filter(_within(keys, low, high)).chunks
            yield from _twice(kept)

    def _ranges(self) -> Iterator[tuple[str | None, str | None]]:
        # Half as many as may be held, since a sample only comes near the true cuts.
        parts = 2 * -(-self._count // self._held_max)
        sample = sorted(self._sample)
        cuts = sorted({sample[len(sample) * part // parts] for part in range(1, parts)})
        yield from zip([None, *cuts], [*cuts, None], strict=True)


def _within(keys: pa.ChunkedArray, low: str | None, high: str | None) -> pa.ChunkedArray:
    above = pc.is_valid(keys) if low is None else pc.greater_equal(keys, low)
    return above if high is None else pc.and_(above, pc.less(keys, high))


def _twice(chunks: list[pa.Array]) -> Iterator[str]:
    table = pa.table({"key": pa.chunked_array(chunks, pa.string())})
    counted = table.group_by("key").aggregate([([], "count_all")])
    found = counted.filter(pc.greater(counted["count_all"], 1)).column("key").drop_null()
    yield from sorted(found.to_pylist())
