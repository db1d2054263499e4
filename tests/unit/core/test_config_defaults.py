"""Defaults of settings and rules are those of the keys that they are read from."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.unit.doubles import ManualClock
from tidelock.core.config import ConfigKey, ConfigSection
from tidelock.execution.filegroup.context import BloomSettings, FileSettings
from tidelock.hudi.properties import TableType, new_properties
from tidelock.operations.config import BLOOM_ENABLED, WriteSettings
from tidelock.services import config as c
from tidelock.services.clean import Retention
from tidelock.services.clustering import ClusteringRule
from tidelock.services.compaction import CompactionRule, TriggerRule
from tidelock.services.ttl import TtlRule

SOURCE = Path(__file__).parents[3] / "src"
READS = ("required", "value", "positive", "member")
"""The methods of a key that return its value, or its default."""


class Mirrored(NamedTuple):
    """A field with a default that is set to the value of a key."""

    field: str
    default: object
    key: str
    key_default: object


def mirrored(tree: ast.Module, names: Mapping[str, object]) -> Iterator[Mirrored]:
    """Yield the fields that a module sets by `KEY.required(...)`, in the call or just before it."""
    for owner in ast.walk(tree):
        match owner:
            case ast.ClassDef(name=name, body=body):
                own = {"cls": names.get(name)}
            case ast.Module(body=body):
                own = {}
            case _:
                continue
        for function in body:
            if isinstance(function, ast.FunctionDef):
                yield from _mirrored_in(function, {**names, **own})


def _mirrored_in(function: ast.FunctionDef, names: Mapping[str, object]) -> Iterator[Mirrored]:
    local = dict(_assigned(function))
    for call in ast.walk(function):
        made = _resolved(call.func, names) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or not isinstance(made, type) or not is_dataclass(made):
            continue
        known = {each.name: each for each in fields(made) if each.init}
        given = dict(zip(known, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
        for name, value in given.items():
            source = local.get(value.id, value) if isinstance(value, ast.Name) else value
            key = _key_read_by(source, names)
            if key is not None and name in known and known[name].default is not MISSING:
                default = known[name].default
                yield Mirrored(f"{made.__name__}.{name}", default, key.key, key.default)


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=True):
                    if isinstance(target, ast.Name):
                        yield target.id, value
            case _:
                pass


def _key_read_by(value: ast.expr, names: Mapping[str, object]) -> ConfigKey[object] | None:
    match value:
        case ast.Call(func=ast.Attribute(value=key, attr=method)) if method in READS:
            found = _resolved(key, names)
            return found if isinstance(found, ConfigKey) else None
        case _:
            return None


def _resolved(node: ast.expr, names: Mapping[str, object]) -> object:
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=above, attr=name):
            return getattr(_resolved(above, names), name, None)
        case _:
            return None


def in_source() -> Iterator[Mirrored]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(f".{method}(" in text for method in READS):
            module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            yield from mirrored(ast.parse(text), vars(import_module(module)))


def test_defaults_of_fields_are_those_of_their_keys() -> None:
    found = set(in_source())
    assert {each for each in found if each.default != each.key_default} == set()
    assert {
        "BloomSettings.entries",
        "Clustering.removable",
        "ClusteringRule.small_bytes",
        "FileSettings.row_group_bytes",
        "PartitionFilter.recent",
        "Retention.commits",
        "TriggerRule.delta_commits",
        "TtlRule.most",
    } <= {each.field for each in found}


def test_rules_read_from_no_settings_are_the_default_rules() -> None:
    clock = ManualClock()
    assert c.trigger_rule({}) == TriggerRule()
    assert replace(c.compaction_rule({}, clock), earliest_day="") == CompactionRule()
    assert replace(c.clean_retention({}, clock), since="") == Retention()
    clustering = c.clustering_rule({}, clock)
    anytime = replace(clustering.partitions, hour=0)
    assert replace(clustering, partitions=anytime) == ClusteringRule()
    assert c.ttl_rule({c.TTL_DAYS.key: 9}) == TtlRule(9)


def test_files_written_with_no_settings_have_the_default_layout() -> None:
    table = new_properties(name="t", table_type=TableType.COPY_ON_WRITE, record_keys=["id"])
    assert WriteSettings.read({}, table).files == FileSettings()
    with_bloom = WriteSettings.read({BLOOM_ENABLED.key: True}, table)
    assert with_bloom.files.bloom == BloomSettings()


PLANTED = """
def read(settings):
    retries = RETRIES.required(settings)
    return Planted(WAIT_MS.required(settings), retries=retries)
"""


def test_planted_disagreement_is_found() -> None:
    @dataclass(frozen=True)
    class Planted:
        wait_ms: int = 7
        retries: int = 3

    def key(name: str, default: int) -> ConfigKey[int]:
        return ConfigKey(name, int, default, "a planted key", ConfigSection.LOCK)

    names = {"Planted": Planted, "WAIT_MS": key("planted.wait", 8), "RETRIES": key("planted.r", 3)}
    found = set(mirrored(ast.parse(PLANTED), names))
    assert {each for each in found if each.default != each.key_default} == {
        Mirrored("Planted.wait_ms", 7, "planted.wait", 8)
    }
    assert len(found) == 2
