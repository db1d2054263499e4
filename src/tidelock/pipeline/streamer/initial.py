"""Where a source is begun that others have taken up to some place before.

Hudi's two providers by their names, or a function of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tidelock.base.errors import ConfigInvalid, NotFound
from tidelock.operation.reads import snapshot_now
from tidelock.pipeline.streamer import config as c
from tidelock.pipeline.streamer.checkpoint import OURS, checkpoint_of, hudi_place
from tidelock.pipeline.streamer.sources.offsets import offsets_text
from tidelock.pipeline.streamer.sources.spilling import is_stored
from tidelock.pipeline.streamer.transform import function_of
from tidelock.store.address import StoreAddress

_CONNECT: Final = re.compile(r"([A-Za-z0-9._-]+)\+(\d+)\+(\d+)\+(\d+)(\.\w+)*")
"""What Kafka Connect calls its files: topic, partition, first and last offset."""


def initial_checkpoint(named: str, settings: Mapping[str, object], source: str) -> str:
    """Return where to begin `source`, as the provider of this name says.

    Raises: `ConfigInvalid`, `NotFound` if it finds no place.
    """
    if ":" in named:
        return str(function_of(named, "checkpoint provider")(dict(settings)))
    where = c.CHECKPOINT_PROVIDER_PATH.required(settings)
    options = {key: value for key, value in settings.items() if not c.is_streamers(key)}
    address = StoreAddress(where, options)
    if named.rpartition(".")[2].lower() == "kafkaconnecthdfsprovider":
        return _behind_files(address)
    return _of_table(address, source)


def _of_table(address: StoreAddress, source: str) -> str:
    """Return where a streamer of another table is: one of ours on this source, or Hudi's."""
    timeline = snapshot_now(address.open()).timeline
    for instant in reversed(timeline.writes()):
        extra = timeline.commit(instant).extra_metadata
        if OURS in extra:
            held = checkpoint_of(extra, where=address.uri)
            # A long list of files lies in that table's folder; Hudi's short form is everywhere.
            if held.source == source and not is_stored(held.at):
                return held.at
            if held.source != source:
                continue
        found = hudi_place(extra)
        if found is not None:
            return found
    raise NotFound(
        f"{address.uri}: no commit has a checkpoint of {source}",
        hint=f"correct {c.CHECKPOINT_PROVIDER_PATH.key}, or say where to begin with --checkpoint",
    )


def _behind_files(address: StoreAddress) -> str:
    """Return the offsets behind the files that Kafka Connect wrote."""
    topics: set[str] = set()
    offsets: dict[int, int] = {}
    for file in address.open().list(""):
        found = _CONNECT.fullmatch(file.key.rpartition("/")[2])
        if found is None:
            continue
        topics.add(found[1])
        # The last offset in a name was written; Hudi would read that record again.
        offsets[int(found[2])] = max(int(found[4]) + 1, offsets.get(int(found[2]), 0))
    if not topics:
        raise NotFound(f"{address.uri} has no file of Kafka Connect (topic+partition+first+last)")
    missing = set(range(max(offsets))) - set(offsets)
    if len(topics) > 1 or missing:
        said = f"of the topics {', '.join(sorted(topics))}" if len(topics) > 1 else "not complete"
        gaps = f": no file of the partitions {sorted(missing)}" if missing else ""
        raise ConfigInvalid(f"the files of Kafka Connect in {address.uri} are {said}{gaps}")
    return offsets_text(topics.pop(), offsets)
