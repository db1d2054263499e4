"""The command `tidelock config`: explain the keys of the configuration catalogue."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from tidelock.cli import options
from tidelock.cli.options import option
from tidelock.cli.output import Output, columns, facts
from tidelock.core import config as catalogue
from tidelock.core.errors import ConfigInvalid
from tidelock.core.unsupported_keys import HudiKey, KeySupport, hudi_keys

DECLARING_MODULES: Final = (
    "tidelock.lock.config",
    "tidelock.lock.providers.config",
    "tidelock.operations.config",
    "tidelock.services.config",
    "tidelock.spark.options",
    "tidelock.storage.config",
    "tidelock.streamer.config",
    "tidelock.txn.config",
)
"""Every module that declares keys. A module enters its keys into the catalogue on import."""


def load_catalogue() -> None:
    """Import every module that declares keys."""
    for module in DECLARING_MODULES:
        import_module(module)


def config(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY", help="A key or an old name of one; without it, sections are listed."
        ),
    ] = None,
    *,
    section: Annotated[
        str | None, option("--section TITLE", "List the keys of one section.", show_default=True)
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Explain configuration keys.

    Shows the type, default, old names, section and meaning of a key, and whether it is honoured,
    ignored or refused. Hudi keys that Tidelock does not support are explained as well. Exit
    status: 0 on success, 2 if the key or section is unknown; the error names similar keys.

        tidelock config hoodie.index.type
    """
    load_catalogue()
    output = Output(as_json=as_json)
    if key is not None and section is not None:
        raise ConfigInvalid("KEY and --section: cannot be used together", hint="remove one of them")
    if section is not None:
        _list_section(output, section)
    elif key is not None:
        _explain(output, key)
    else:
        _list_sections(output)


def _explain(output: Output, name: str) -> None:
    found = catalogue.find(name)
    if found is None:
        raise catalogue.unknown_key(name, catalogue.corrections(name))
    shown = key_facts(found)
    if isinstance(found, HudiKey) and found.prefix:
        shown["covers"] = f"every key that begins with {found.prefix} is {found.support}"
        shown["similar"] = catalogue.corrections(name)
    rows = [
        (label, _text(value))
        for label, value in shown.items()
        if value not in (None, "", [], False)
    ]
    output.result(shown, Text(found.key, style="bold"), *facts(rows[1:]))


def key_facts(key: catalogue.ConfigKey[Any] | HudiKey) -> dict[str, object]:
    """Return the fields of a catalogue entry, as `--json` writes them."""
    if isinstance(key, HudiKey):
        return {
            "key": key.key,
            "support": key.support.value,
            "section": "Hudi",
            "reason": key.reason,
            "instead": key.hint,
            "allowed": key.allowed_text(),
        }
    return {
        "key": key.key,
        "support": KeySupport.HONOURED.value,
        "section": key.section.value,
        "type": key.type_name,
        "default": key.default_text or None,
        "values": list(key.choices),
        "aliases": list(key.aliases),
        "secret": key.secret,
        "meaning": key.doc,
    }


def _list_sections(output: Output) -> None:
    keys = list(catalogue.declared_keys())
    counts = {title: sum(key.section is title for key in keys) for title in catalogue.ConfigSection}
    others = {
        support: sum(key.support is support for key in hudi_keys())
        for support in (KeySupport.REFUSED, KeySupport.IGNORED)
    }
    rows = [(str(title), str(count)) for title, count in counts.items()]
    output.result(
        {
            "sections": [{"section": str(title), "keys": count} for title, count in counts.items()],
            "refused": others[KeySupport.REFUSED],
            "ignored": others[KeySupport.IGNORED],
        },
        *columns(("section", "keys"), rows),
        f"Hudi keys that are refused: {others[KeySupport.REFUSED]},"
        f" ignored: {others[KeySupport.IGNORED]}",
    )


def _list_section(output: Output, title: str) -> None:
    section = next(
        (each for each in catalogue.ConfigSection if each.lower() == title.lower()), None
    )
    if section is None:
        raise ConfigInvalid(
            f"--section: expected a section of the catalogue, got {title!r}",
            hint=f"use one of {', '.join(catalogue.ConfigSection)}",
        )
    keys = [key for key in catalogue.declared_keys() if key.section is section]
    rows = [(key.key, key.type_name, key.default_text, key.doc) for key in keys]
    output.result(
        {"section": str(section), "keys": [key_facts(key) for key in keys]},
        *columns(("key", "type", "default", "meaning"), rows),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
