"""Configuration of the lock service: component files, principals, addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.doubles import ManualClock
from tidelock.core.errors import ConfigInvalid, PermissionDenied
from tidelock.core.system import SeededIds
from tidelock.core.telemetry import Metrics
from tidelock.lock.server.auth import (
    DEFAULT_PERMISSIONS,
    Authenticator,
    Permission,
    Principal,
    read_principals,
    single_token,
    token_hash,
)
from tidelock.lock.server.component import (
    DEFAULT_NAME,
    OWN_TYPE,
    ComponentBuilder,
    ComponentSpec,
    check_separate_journals,
    read_specs,
)
from tidelock.lock.server.errors import Overloaded, Unauthenticated
from tidelock.lock.server.health import AppHealth
from tidelock.lock.server.process import ServerConfig

REDIS = """
apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: lockstore
spec:
  type: lock.redis
  version: v1
  metadata:
  - name: redisHost
    value: localhost:6379
  - name: redisPassword
    envRef: REDIS_PASSWORD
  - name: enableTLS
    value: true
  - name: keyPrefix
    value: none
  - name: ttl
    value: 90s
---
apiVersion: dapr.io/v1alpha1
kind: Component
metadata:
  name: statestore
spec:
  type: state.redis
  version: v1
"""


def test_dapr_component_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "p@ss")
    (tmp_path / "redis.yaml").write_text(REDIS)
    (tmp_path / "notes.txt").write_text("not a component")
    [spec] = read_specs(tmp_path)
    assert (spec.name, spec.type, spec.ttl_ms) == ("lockstore", "lock.redis", 90_000)
    assert spec.key_prefix == "none"
    assert spec.own_metadata() == {
        "redishost": "localhost:6379",
        "redispassword": "p@ss",
        "enabletls": "true",
    }


def test_component_scoped_to_other_applications_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(REDIS.replace("spec:\n  type: lock", "scopes: [billing]\nspec:\n  type: lock"))
    assert read_specs(file, app_id="other") == []
    assert len(read_specs(file, app_id="billing")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "kind: Component",
        "kind: Component\nmetadata: {name: x}\nspec: {type: lock.redis, metadata: 5}",
        "kind: Component\nmetadata: {name: x}\nspec: {type: lock.redis, metadata: [{name: a}]}",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_invalid_component_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigInvalid):
        read_specs(file)


def test_two_stores_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(REDIS)
    with pytest.raises(ConfigInvalid, match="two lock stores"):
        read_specs(tmp_path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="there is no component"):
        read_specs(tmp_path / "none")


def builder(tmp_path: Path) -> ComponentBuilder:
    return ComponentBuilder(str(tmp_path), ManualClock(), SeededIds(1), Metrics())


def test_unknown_type_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="does not exist") as error:
        builder(tmp_path).component(ComponentSpec("s", "lock.nothing"))
    assert "redis" in error.value.hint
    assert OWN_TYPE in error.value.hint


def test_misspelt_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="redishots"):
        builder(tmp_path).component(ComponentSpec("s", "lock.redis", {"redishots": "x"}))


def test_components_with_a_backend_have_separate_journals(tmp_path: Path) -> None:
    make = builder(tmp_path).component
    positions = {
        make(ComponentSpec(name, "lock.inprocess")).shard.journal.store.uri
        for name in ("a", "b", "../c")
    }
    assert len(positions) == 3
    assert all(position.startswith(f"file://{tmp_path}/") for position in positions)


def test_two_stores_on_one_journal_are_refused(tmp_path: Path) -> None:
    make = builder(tmp_path).component
    apart = [make(ComponentSpec(name, OWN_TYPE)) for name in (DEFAULT_NAME, "other")]
    check_separate_journals(apart)
    same = make(ComponentSpec("third", OWN_TYPE, {"url": str(tmp_path)}))
    with pytest.raises(ConfigInvalid, match="both use"):
        check_separate_journals([*apart, same])


def test_only_a_valid_token_is_accepted() -> None:
    authenticator = Authenticator(ManualClock(), single_token("right", may_force=False))
    assert authenticator.authenticate("right", "here").permissions == DEFAULT_PERMISSIONS
    for wrong in ("", None, "wrong", "x" * 10_000, "righ\udc74"):
        with pytest.raises(Unauthenticated, match="invalid api token"):
            authenticator.authenticate(wrong, "here")


def test_token_guessing_is_slowed_down_per_address_and_forgotten_later() -> None:
    clock = ManualClock()
    authenticator = Authenticator(clock, single_token("right", may_force=True))
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            authenticator.authenticate("wrong", "there")
    with pytest.raises(Overloaded):
        authenticator.authenticate("right", "there")
    assert authenticator.authenticate("right", "elsewhere").name == "token"
    clock.advance(61_000)
    assert authenticator.authenticate("right", "there").name == "token"


def test_permissions_are_checked_and_admin_has_all() -> None:
    with pytest.raises(PermissionDenied, match="force"):
        Principal("p").check(Permission.FORCE)
    Principal("p", "", frozenset({Permission.ADMIN})).check(Permission.FORCE)


@pytest.mark.parametrize(
    "item",
    [
        {"name": "a"},
        {"name": "a", "token_sha256": "00"},
        {"name": "a", "token_sha256": "zz" * 32},
        {"name": "a||b", "token_sha256": token_hash("t")},
        {"name": "a", "token_sha256": token_hash("t"), "namespace": "lock"},
        {"name": "a", "token_sha256": token_hash("t"), "permissions": ["everything"]},
        {"name": "", "token_sha256": token_hash("t")},
    ],
)
def test_invalid_principal_is_refused(tmp_path: Path, item: dict[str, object]) -> None:
    file = tmp_path / "principals.json"
    file.write_text(json.dumps({"principals": [item]}))
    with pytest.raises(ConfigInvalid):
        read_principals(file)


def test_empty_list_of_principals_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "principals.json"
    file.write_text('{"principals": []}')
    with pytest.raises(ConfigInvalid, match="at least one principal"):
        read_principals(file)


ANYBODY = Authenticator(ManualClock(), anonymous=Principal("anybody"))
GUARDED = Authenticator(ManualClock(), single_token("t", may_force=False))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_token(host: str) -> None:
    ServerConfig([], "x", ANYBODY, host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_other_addresses_need_a_token_and_tls(host: str) -> None:
    with pytest.raises(ConfigInvalid, match="no API token"):
        ServerConfig([], "x", ANYBODY, host=host).check()
    with pytest.raises(ConfigInvalid, match="unencrypted"):
        ServerConfig([], "x", GUARDED, host=host).check()
    ServerConfig([], "x", ANYBODY, host=host, insecure=True).check()


@pytest.mark.parametrize("url", ["", "ftp://x", "https://x", "localhost:80", "http://"])
def test_invalid_application_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        AppHealth(url)
