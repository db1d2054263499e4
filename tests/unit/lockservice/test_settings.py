"""What the lock service is told from outside: component files, principals, addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.doubles import ManualClock
from tidelock.base.errors import ConfigInvalid, PermissionDenied
from tidelock.base.ids import SeededIds
from tidelock.base.metrics import Metrics
from tidelock.lockservice.answers import Overloaded, Unauthenticated
from tidelock.lockservice.auth import (
    USUAL,
    Doorkeeper,
    Permission,
    Principal,
    read_principals,
    single_token,
    token_hash,
)
from tidelock.lockservice.building import Builder, check_apart
from tidelock.lockservice.health import AppHealth
from tidelock.lockservice.server import Serving
from tidelock.lockservice.specs import DEFAULT_NAME, OWN_TYPE, Spec, read_specs

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


def test_daprs_own_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_component_of_other_applications_is_passed_over(tmp_path: Path) -> None:
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
def test_what_is_not_a_component_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigInvalid):
        read_specs(file)


def test_two_stores_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(REDIS)
    with pytest.raises(ConfigInvalid, match="two lock stores"):
        read_specs(tmp_path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="there is no component"):
        read_specs(tmp_path / "none")


def builder(tmp_path: Path) -> Builder:
    return Builder(str(tmp_path), ManualClock(), SeededIds(1), Metrics())


def test_an_unknown_type_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="does not exist") as error:
        builder(tmp_path).component(Spec("s", "lock.nothing"))
    assert "redis" in error.value.hint
    assert OWN_TYPE in error.value.hint


def test_a_misspelt_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="redishots"):
        builder(tmp_path).component(Spec("s", "lock.redis", {"redishots": "x"}))


def test_components_with_a_backend_keep_their_journals_apart(tmp_path: Path) -> None:
    make = builder(tmp_path).component
    places = {
        make(Spec(name, "lock.inprocess")).cell.journal.store.uri for name in ("a", "b", "../c")
    }
    assert len(places) == 3
    assert all(place.startswith(f"file://{tmp_path}/") for place in places)


def test_two_stores_on_one_journal_are_refused(tmp_path: Path) -> None:
    make = builder(tmp_path).component
    apart = [make(Spec(name, OWN_TYPE)) for name in (DEFAULT_NAME, "other")]
    check_apart(apart)
    same = make(Spec("third", OWN_TYPE, {"url": str(tmp_path)}))
    with pytest.raises(ConfigInvalid, match="both lie in"):
        check_apart([*apart, same])


def test_a_token_opens_the_door_and_nothing_else_does() -> None:
    door = Doorkeeper(ManualClock(), single_token("right", may_force=False))
    assert door.admit("right", "here").permissions == USUAL
    for wrong in ("", None, "wrong", "x" * 10_000, "righ\udc74"):
        with pytest.raises(Unauthenticated, match="invalid api token"):
            door.admit(wrong, "here")


def test_guessing_is_slowed_down_by_address_and_forgotten_after_a_while() -> None:
    clock = ManualClock()
    door = Doorkeeper(clock, single_token("right", may_force=True))
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            door.admit("wrong", "there")
    with pytest.raises(Overloaded):
        door.admit("right", "there")
    assert door.admit("right", "elsewhere").name == "token"
    clock.advance(61_000)
    assert door.admit("right", "there").name == "token"


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
def test_a_principal_that_cannot_be_is_refused(tmp_path: Path, item: dict[str, object]) -> None:
    file = tmp_path / "principals.json"
    file.write_text(json.dumps({"principals": [item]}))
    with pytest.raises(ConfigInvalid):
        read_principals(file)


def test_nobody_is_not_a_list_of_principals(tmp_path: Path) -> None:
    file = tmp_path / "principals.json"
    file.write_text('{"principals": []}')
    with pytest.raises(ConfigInvalid, match="no principal"):
        read_principals(file)


ANYBODY = Doorkeeper(ManualClock(), anybody=Principal("anybody"))
GUARDED = Doorkeeper(ManualClock(), single_token("t", may_force=False))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_this_machine_needs_no_token(host: str) -> None:
    Serving([], "x", ANYBODY, host=host).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_other_addresses_need_a_token_and_tls(host: str) -> None:
    with pytest.raises(ConfigInvalid, match="no API token"):
        Serving([], "x", ANYBODY, host=host).check()
    with pytest.raises(ConfigInvalid, match="in the clear"):
        Serving([], "x", GUARDED, host=host).check()
    Serving([], "x", ANYBODY, host=host, insecure=True).check()


@pytest.mark.parametrize("url", ["", "ftp://x", "https://x", "localhost:80", "http://"])
def test_an_application_that_cannot_be_asked_is_refused(url: str) -> None:
    with pytest.raises(ConfigInvalid):
        AppHealth(url)
