"""The configuration catalogue: every key is declared once, in one way, and is complete."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelock.cli.config import DECLARING_MODULES, load_catalogue
from tidelock.core.config import (
    ConfigKey,
    ConfigSection,
    boolean,
    choice,
    comma_list,
    corrections,
    declared_keys,
    declared_names,
    find,
    known_names,
    support,
)
from tidelock.core.errors import ConfigInvalid
from tidelock.core.unsupported_keys import HudiKey, KeySupport, hudi_keys
from tidelock.hudi.keys import TIME_TYPES
from tidelock.operations.config import KEY_GENERATORS

SOURCE = Path(__file__).parents[3] / "src"
WRAPPERS = ("declare", "_time_option")
"""The functions that declare keys. Those of the streamer and of key generators pass theirs on."""


@pytest.fixture(autouse=True)
def catalogue() -> None:
    load_catalogue()


def _calls(name: str) -> dict[str, list[ast.Call]]:
    """Return the calls of a function by module, except in the module that defines it."""
    found: dict[str, list[ast.Call]] = {}
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module == "tidelock.core.config":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "id", None),
                getattr(node.func, "attr", None),
            ):
                found.setdefault(module, []).append(node)
    return found


def test_every_module_that_declares_keys_is_loaded() -> None:
    assert set(_calls("declare")) == set(DECLARING_MODULES)


def test_keys_are_declared_only_through_the_catalogue() -> None:
    assert _calls("ConfigKey") == {}


def test_every_name_is_in_the_catalogue_once() -> None:
    names = [name for key in declared_keys() for name in key.names]
    names += [key.key for key in hudi_keys()]
    assert [name for name, count in Counter(map(str.lower, names)).items() if count > 1] == []


def test_every_declaration_is_in_the_catalogue() -> None:
    calls = [call for name in WRAPPERS for each in _calls(name).values() for call in each]
    passed_on = [
        call
        for call in calls
        if isinstance(call.args[0], ast.JoinedStr) or getattr(call.args[0], "id", "") == "key"
    ]
    assert len(passed_on) == 2
    assert len(calls) - len(passed_on) == len(list(declared_keys())) > 250


def test_every_key_has_a_meaning_and_every_section_a_key() -> None:
    assert [key.key for key in declared_keys() if not key.doc or key.doc.endswith(".")] == []
    assert {key.section for key in declared_keys()} == set(ConfigSection)
    assert [key.key for key in hudi_keys() if not key.reason] == []
    refused = [key for key in hudi_keys() if key.support is KeySupport.REFUSED]
    assert [key.key for key in refused if not key.hint] == []


def test_every_default_is_accepted_by_its_key() -> None:
    for key in declared_keys():
        if key.default is None or key.default == "":
            continue
        assert key.value({key.key: key.default_text}) == key.default, key.key
        if key.choices:
            assert key.default_text in key.choices, key.key


ELSEWHERE = {
    "tidelock/core/unsupported_keys.py": "the other part of the catalogue, which is below it",
    "tidelock/hudi/properties.py": "the properties of a table, some of which are old names of keys",
    "tidelock/streamer/read.py": "a key in the metadata of commits that has the same text",
}
"""Files in which a literal equals the name of a key, with the reason."""


def spelled_out(trees: Mapping[str, ast.Module]) -> list[tuple[str, str]]:
    """Return each literal that is the name of a key and not part of its declaration."""
    nodes = {path: list(ast.walk(tree)) for path, tree in trees.items()}
    calls = [
        node
        for found in nodes.values()
        for node in found
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in WRAPPERS
    ]
    part_of_calls = {id(node) for call in calls for node in ast.walk(call)}
    constants = {getattr(call.args[0], "id", "") for call in calls if call.args}
    part_of_constants = {
        id(node.value)
        for found in nodes.values()
        for node in found
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") in constants
    }
    return [
        (path, node.value)
        for path, found in nodes.items()
        for node in found
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in declared_names()
        and id(node) not in part_of_calls | part_of_constants
    ]


def test_name_of_a_key_is_written_only_in_its_declaration() -> None:
    trees = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in SOURCE.rglob("*.py")
    }
    found = spelled_out(trees)
    assert [each for each in found if each[0] not in ELSEWHERE] == []
    assert {path for path, _ in found} == set(ELSEWHERE)


def test_planted_name_of_a_key_is_found() -> None:
    declared = 'KEY: Final = "hoodie.index.type"\nTYPE = declare(KEY, "meaning", parse=str)\n'
    used = 'options = {"hoodie.index.type": "BLOOM"}\nraise ValueError("hoodie.index.type: no")\n'
    trees = {"config.py": ast.parse(declared), "user.py": ast.parse(used)}
    assert spelled_out(trees) == [("user.py", "hoodie.index.type")]


def test_key_cannot_be_declared_twice() -> None:
    with pytest.raises(ConfigInvalid, match=r"hoodie\.index\.type is declared twice"):
        ConfigSection.INDEXES.declare("hoodie.index.type", "again", parse=str)


def test_name_is_honoured_ignored_refused_or_unknown() -> None:
    assert support("hoodie.index.type") is KeySupport.HONOURED
    assert support("hoodie.upsert.shuffle.parallelism") is KeySupport.IGNORED
    assert support("hoodie.metrics.on") is KeySupport.IGNORED
    assert support("hoodie.table.base.file.format") is KeySupport.REFUSED
    assert support("hoodie.no.such.key") is None
    alias = find("hoodie.cleaner.policy")
    assert isinstance(alias, ConfigKey)
    assert alias.key == "hoodie.clean.policy"
    family = find("hoodie.metrics.on")
    assert isinstance(family, HudiKey)
    assert family.key == "hoodie.metrics.*"
    assert "hoodie.metrics.on" not in declared_names()


def test_keys_are_case_sensitive_as_in_hudi() -> None:
    for name in ("hoodie.index.type", "hoodie.base.file.format", "hoodie.metrics.on"):
        assert support(name) is not None
        assert support(name.upper()) is None
        assert support(name.title()) is None


def test_names_that_differ_by_one_letter_are_corrected() -> None:
    names = sorted(known_names())
    for number, name in enumerate(names[::40]):
        at = 1 + number % (len(name) - 1)
        typo = name[:at] + name[at + 1 :]
        if typo not in names:
            assert name in corrections(typo), typo


def test_names_that_resemble_no_key_have_no_correction() -> None:
    for name in ("hoodie.bogus", "hoodie.write", "tidelock.zzz", "spark.master", "x", ""):
        assert corrections(name) == []


def test_merge_properties_of_a_table_are_known() -> None:
    for name in ("hoodie.payload.delete.field", "hoodie.payload.delete.marker"):
        assert support(name) is KeySupport.IGNORED
        assert support(f"hoodie.record.merge.property.{name}") is KeySupport.IGNORED


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hoodie.parquet.max.file.size", "big", "expected an integer, got 'big'"),
        ("hoodie.index.bloom.fpp", "low", "expected a number, got 'low'"),
        ("hoodie.combine.before.upsert", "yes", "expected true or false, got 'yes'"),
        ("hoodie.write.concurrency.mode", "MANY", "expected one of SINGLE_WRITER, .*, got 'MANY'"),
    ],
)
def test_value_of_the_wrong_type_is_reported(name: str, value: str, message: str) -> None:
    key = find(name)
    assert isinstance(key, ConfigKey)
    with pytest.raises(ConfigInvalid, match=f"{name}: {message}") as caught:
        key.value({name: value})
    next_step = key.choices[-1] if key.choices else key.doc
    assert next_step in caught.value.hint


def test_explicit_values_are_those_under_the_current_key_name() -> None:
    key = find("hoodie.table.name")
    assert isinstance(key, ConfigKey)
    settings = {"hoodie.datasource.write.table.name": "orders"}
    assert key.value(settings) == "orders"
    assert key.explicit(settings) is None
    assert key.explicit({"hoodie.table.name": "orders"}) == "orders"


def test_parsers_accept_what_java_accepts() -> None:
    assert boolean("TRUE")
    assert comma_list(" a, ,b") == ("a", "b")
    assert choice(KeySupport)("Refused") is KeySupport.REFUSED


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("hoodie.datasource.write.keygenerator.type", KEY_GENERATORS),
        ("hoodie.keygen.timebased.timestamp.type", TIME_TYPES),
    ],
)
def test_key_of_few_values_declares_them(name: str, choices: tuple[str, ...]) -> None:
    key = find(name)
    assert isinstance(key, ConfigKey)
    assert key.choices == choices
