"""Initial checkpoint providers: the start position in a source that another process has read.

Hudi's two providers by their class names, or a function of the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelock.core.errors import ConfigInvalid, NotFound
from tidelock.operations.read import snapshot_now
from tidelock.storage.uri import StoreAddress
from tidelock.streamer import config as c
from tidelock.streamer.checkpoint import OURS, checkpoint_of, hudi_checkpoint
from tidelock.streamer.sources.checkpoint_files import is_stored
from tidelock.streamer.sources.offsets import offsets_text
from tidelock.streamer.transform import load_function

_CONNECT: Final = re.compile(r"([A-Za-z0-9._-]+)\+(\d+)\+(\d+)\+(\d+)(\.\w+)*")
"""The file names of Kafka Connect: topic, partition, first and last offset."""


def initial_checkpoint(named: str, settings: Mapping[str, object], source: str) -> str:
    """Return the start position in `source` according to a provider.

    Raises: `ConfigInvalid`, `NotFound` if the provider finds no position.
    """
    if ":" in named:
        return str(load_function(named, "checkpoint provider")(dict(settings)))
    where = c.CHECKPOINT_PROVIDER_PATH.required(settings)
    options = {key: value for key, value in settings.items() if not c.is_streamer_key(key)}
    address = StoreAddress(where, options)
    if named.rpartition(".")[2].lower() == "kafkaconnecthdfsprovider":
        return _after_connect_files(address)
    return _from_table(address, source)


def _from_table(address: StoreAddress, source: str) -> str:
    """Return the checkpoint of a streamer of another table: ours on this source, or Hudi's."""
    timeline = snapshot_now(address.open()).timeline
    for instant in reversed(timeline.writes()):
        extra = timeline.commit(instant).extra_metadata
        if OURS in extra:
            stored = checkpoint_of(extra, where=address.uri)
            # A checkpoint file is only in the other table; Hudi's short form is in the commit.
            if stored.source == source and not is_stored(stored.position):
                return stored.position
            if stored.source != source:
                continue
        found = hudi_checkpoint(extra)
        if found is not None:
            return found
    raise NotFound(
        f"{address.uri}: no commit has a checkpoint of {source}",
        hint=f"correct {c.CHECKPOINT_PROVIDER_PATH.key}, or set the start with --checkpoint",
    )


def _after_connect_files(address: StoreAddress) -> str:
    """Return the offsets after the files that Kafka Connect wrote."""
    topics: set[str] = set()
    offsets: dict[int, int] = {}
    for file in address.open().list(""):
        found = _CONNECT.fullmatch(file.key.rpartition("/")[2])
        if found is None:
            continue
        topics.add(found[1])
        # The last offset in the name is included in the file; Hudi reads that record again.
        offsets[int(found[2])] = max(int(found[4]) + 1, offsets.get(int(found[2]), 0))
    if not topics:
        raise NotFound(
            f"{address.uri}: expected files of Kafka Connect, named topic+partition+first+last,"
            " found none",
            hint=f"correct {c.CHECKPOINT_PROVIDER_PATH.key}",
        )
    missing = set(range(max(offsets))) - set(offsets)
    if len(topics) > 1 or missing:
        several = f" several topics ({', '.join(sorted(topics))})" if len(topics) > 1 else ""
        joined = " and" if several else ""
        gaps = f"{joined} no file of the partitions {sorted(missing)}" if missing else ""
        raise ConfigInvalid(
            f"{address.uri}: expected files of one topic and all its partitions, got{several}{gaps}"
        )
    return offsets_text(topics.pop(), offsets)
