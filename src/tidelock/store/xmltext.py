"""XML as the stores answer it: small, in UTF-8, without a document type."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tidelock.base.errors import DataCorrupt


def parse_xml(body: bytes, *, subject: str) -> ET.Element:
    """Return the root element of `body`, or raise `DataCorrupt`.

    No store sends a document type. One could declare entities that grow without bound, so it is
    refused before the parser sees it.
    """
    try:
        text = body.decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise DataCorrupt(f"{subject}: the store's reply declares a document type")
        return ET.fromstring(text)  # noqa: S314 - entities are refused above
    except (UnicodeDecodeError, ET.ParseError) as error:
        raise DataCorrupt(
            f"{subject}: the store's reply is not XML", hint="is this the end point of a store?"
        ) from error


def text_of(element: ET.Element, name: str) -> str:
    """Return the text of the child `name` in whatever namespace, or nothing."""
    return element.findtext(f"{{*}}{name}") or ""


def error_code(body: bytes) -> str:
    """Return the `Code` of an error document, or nothing if there is none to find."""
    if b"<Code>" not in body:
        return ""
    try:
        return text_of(parse_xml(body, subject="error"), "Code").strip()
    except DataCorrupt:
        return ""
