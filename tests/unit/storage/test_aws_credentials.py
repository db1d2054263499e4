"""Selection of AWS credentials, and the errors without any."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.unit.storage.raw_server import raw_server
from tidelock.core.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.storage.aws import AwsCredentials, credential_source

STATIC = {"hoodie.aws.access.key": "AKID", "hoodie.aws.secret.key": "secret"}
ROLE = {
    "hoodie.aws.role.arn": "arn:aws:iam::123456789012:role/writer",
    "hoodie.aws.role.external.id": "outside",
}
ASSUMED = b"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleResult><Credentials><AccessKeyId>ASIA</AccessKeyId>
<SecretAccessKey>role-secret</SecretAccessKey><SessionToken>role-token</SessionToken>
<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>
</AssumeRoleResponse>"""
DENIED = b"""<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>
<Message>no</Message></Error></ErrorResponse>"""


def http(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.fixture
def without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that botocore is not installed."""
    for name in [*sys.modules]:
        if name == "botocore" or name.startswith("botocore."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "botocore.session", None)


def test_keys_in_the_settings_are_used() -> None:
    settings = {**STATIC, "hoodie.aws.session.token": "token"}
    assert credential_source(settings).keys() == AwsCredentials("AKID", "secret", "token")


@pytest.mark.usefixtures("without_botocore")
def test_keys_in_the_settings_need_no_botocore() -> None:
    assert credential_source(STATIC).keys() == AwsCredentials("AKID", "secret")
    assert credential_source(STATIC).region() is None


@pytest.mark.usefixtures("without_botocore")
def test_other_credentials_need_botocore_and_the_error_says_how_to_install_it() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'tidelock\[s3\]'"):
        credential_source({})


@pytest.mark.parametrize("name", sorted(STATIC))
def test_incomplete_key_pair_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid, match="only one of them is set") as caught:
        credential_source({name: STATIC[name]})
    assert "'secret'" not in str(caught.value)


def test_keys_in_the_environment_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "env-token")
    assert credential_source({}).keys() == AwsCredentials("ENV", "env-secret", "env-token")


def test_keys_and_region_of_a_profile_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile lake]\nregion = eu-north-1\n"
        "aws_access_key_id = PROFILE\naws_secret_access_key = profile-secret\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "lake")
    source = credential_source({})
    assert source.keys() == AwsCredentials("PROFILE", "profile-secret")
    assert source.region() == "eu-north-1"


def test_missing_profile_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigInvalid, match="AWS_PROFILE"):
        credential_source({}).region()


def test_missing_keys_are_denied_with_a_hint() -> None:
    with pytest.raises(PermissionDenied, match="AWS_PROFILE"):
        credential_source({}).keys()


def test_role_is_assumed_once_with_the_keys_in_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with raw_server([http(200, ASSUMED)]) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.origin)
        source = credential_source({**STATIC, **ROLE})
        assert source.keys() == AwsCredentials("ASIA", "role-secret", "role-token")
        assert source.keys() == AwsCredentials("ASIA", "role-secret", "role-token")
    [request] = sts.received
    assert b"Credential=AKID/" in request
    for part in (b"Action=AssumeRole", b"RoleSessionName=hoodie", b"ExternalId=outside"):
        assert part in request


def test_refused_role_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server([http(403, DENIED)]) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.origin)
        with pytest.raises(PermissionDenied, match="refused"):
            credential_source({**STATIC, **ROLE}).keys()


def test_unreachable_role_service_is_retryable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreUnreachable):
        credential_source({**STATIC, **ROLE}).keys()
