"""Component files as Dapr has them: which lock stores there are, of which type, with what settings.

Ours: `lock.tidelock` keeps its locks in a store (`url`: a folder, s3, gs, abfss …) and needs no
other server. Every other type is a lock provider of that name: `lock.redis`, `lock.etcd`,
`lock.zookeeper`, `lock.storage` …
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidelock.base.errors import ConfigInvalid, MissingExtra
from tidelock.lockservice.duration import ttl_field

OWN_TYPE = "lock.tidelock"
DEFAULT_NAME = "lockstore"
"""What the one store is called when no component file names any; Dapr's examples do so, too."""
DEFAULT_TTL_MS = 30_000
_KNOWN_TO_ALL = {"ttl", "keyprefix"}
_FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """One component as its file describes it. Names of metadata are in lower case."""

    name: str
    type: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()

    @property
    def provider(self) -> str:
        """The part of the type after `lock.`."""
        return self.type.removeprefix("lock.")

    @property
    def ttl_ms(self) -> int:
        """The default TTL of its locks."""
        text = self.metadata.get("ttl")
        return (ttl_field("ttl", text) if text else 0) or DEFAULT_TTL_MS

    @property
    def key_prefix(self) -> str:
        """Dapr's key-prefix strategy."""
        return self.metadata.get("keyprefix", "appid")

    def own_metadata(self) -> dict[str, str]:
        """Return the metadata that only this type knows."""
        return {name: value for name, value in self.metadata.items() if name not in _KNOWN_TO_ALL}


def read_specs(place: Path, *, app_id: str = "") -> list[Spec]:
    """Read a component file, or every .yaml and .yml file of a folder, sorted by name.

    Components that are not lock stores are passed over, as are those scoped to other applications.
    Raises: `ConfigInvalid`, `MissingExtra`.
    """
    if not place.exists():
        raise ConfigInvalid(f"there is no component file or folder {place}")
    paths = sorted(place.glob("*.y*ml")) if place.is_dir() else [place]
    found = [spec for path in paths for spec in _of_file(path)]
    found = [spec for spec in found if not spec.scopes or app_id in spec.scopes]
    names = [spec.name for spec in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigInvalid(f"{place} has two lock stores named {name!r}")
    return found


def _of_file(path: Path) -> Iterable[Spec]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            "component files need PyYAML", hint="pip install 'tidelock[serve]'"
        ) from error
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ConfigInvalid(f"{path} is too large for a component file")
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigInvalid(f"{path} is not a component file: {error}") from error
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "Component":
            spec = _spec(document, path)
            if spec.type.startswith("lock."):
                yield spec


def _spec(document: dict[str, Any], path: Path) -> Spec:
    try:
        name = str(document["metadata"]["name"])
        kind = str(document["spec"]["type"])
        metadata = {
            str(item["name"]).lower(): _value(item, path)
            for item in document["spec"].get("metadata") or ()
        }
        scopes = tuple(str(scope) for scope in document.get("scopes") or ())
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigInvalid(
            f"{path} is not a component file: {error!r} is missing or of the wrong type",
            hint="it needs metadata.name, spec.type and a list spec.metadata of name and value",
        ) from error
    return Spec(name, kind, metadata, scopes)


def _value(item: dict[str, Any], path: Path) -> str:
    if "value" in item:
        value = item["value"]
        # YAML has booleans and numbers of its own; a component's metadata is text.
        return str(value).lower() if isinstance(value, bool) else str(value)
    if "envRef" in item:
        return os.environ.get(str(item["envRef"]), "")
    raise ConfigInvalid(
        f"{path}: {item.get('name')!r} has no value",
        hint="give it a value or an envRef; secret stores are Dapr's own",
    )
