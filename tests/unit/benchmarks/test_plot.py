"""Charts are well-formed with any names, and the longest bar fills the width."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from benchmarks.plot import Bar, bars

SVG = "{http://www.w3.org/2000/svg}"


def test_chart_has_proportional_bars() -> None:
    drawn = ET.fromstring(bars("Load", "s", [Bar("a", 2.0, "ours"), Bar("b", 1.0)]))
    _, first, second = drawn.findall(f"{SVG}rect")
    assert float(first.attrib["width"]) == 2 * float(second.attrib["width"])
    assert first.attrib["fill"] != second.attrib["fill"]


def test_xml_characters_in_names_are_escaped() -> None:
    drawn = ET.fromstring(bars("A < B & C", "s", [Bar("x > y", 0.0)]))
    assert "A < B & C" in "".join(drawn.itertext())


def test_chart_without_rows_is_valid() -> None:
    assert ET.fromstring(bars("Nothing", "s", [])).tag == f"{SVG}svg"
