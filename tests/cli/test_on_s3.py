"""The commands on a real S3 server: settings from a properties file, and error messages."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from testkit.servers.s3 import S3Server
from tests.cli.program import Program
from tests.contract.stores import s3_settings

BUCKET = "tidelock-commands"

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("seaweedfs")]


@pytest.fixture
def props(seaweedfs_server: S3Server, tmp_path: Path) -> str:
    """Return a properties file with the server's settings."""
    seaweedfs_server.create_bucket(BUCKET)
    path = tmp_path / "s3.properties"
    lines = [f"{name}={value}\n" for name, value in s3_settings(seaweedfs_server).items()]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def uri() -> str:
    """Return a resource that no other test uses."""
    return f"s3://{BUCKET}/{uuid.uuid4()}"


def test_lock_is_acquired_shown_force_released_and_examined(
    tidelock: Program, props: str, uri: str
) -> None:
    assert tidelock("lock", "run", uri, "--props", props, "--", "true").code == 0
    taken = tidelock("lock", "acquire", uri, "--props", props, "--detach", "--json").facts
    shown = tidelock("lock", "status", uri, "--props", props, "--json").facts
    assert (shown["state"], shown["token"]) == ("held", taken["token"])
    assert tidelock("lock", "run", uri, "--props", props, "--no-wait", "--", "true").code == 4
    assert tidelock("lock", "force-release", uri, "--props", props, "--yes").code == 0
    ended = tidelock("lock", "doctor", uri, "--props", props, "--json")
    assert ended.code == 0, ended.facts
    assert {found["level"] for found in ended.facts["findings"]} == {"fine"}


def test_wrong_credentials_are_reported_without_showing_them(
    tidelock: Program, props: str, uri: str
) -> None:
    wrong = ["--props", props, "--prop", "hoodie.aws.secret.key=not-the-secret"]
    for args in (["lock", "status", uri], ["lock", "doctor", uri], ["lock", "acquire", uri]):
        ended = tidelock(*args, *wrong)
        assert ended.code == 9
        assert "not-the-secret" not in ended.out + ended.err


def test_missing_bucket_is_reported(tidelock: Program, props: str) -> None:
    ended = tidelock("lock", "acquire", "s3://tidelock-no-such/t", "--props", props, "--no-wait")
    assert ended.code == 8
    assert "tidelock-no-such" in ended.err


def test_unreachable_server_is_unavailable(tidelock: Program, props: str, uri: str) -> None:
    nowhere = ["--props", props, "--prop", "tidelock.s3.endpoint=http://127.0.0.1:9"]
    ended = tidelock("lock", "status", uri, *nowhere)
    assert ended.code == 3
