"""Credentials against servers that check them: query signatures, chains, wrong clocks."""

from __future__ import annotations

import base64
import hmac
import uuid
from dataclasses import dataclass
from urllib.parse import quote

import pytest

from testkit.servers.azurite import AzureServer
from testkit.servers.s3 import S3Server
from tests.contract.stores import BUCKET, s3_settings
from tidelock.core.clock import Now
from tidelock.core.errors import PermissionDenied
from tidelock.core.outcome import Landed
from tidelock.core.system import SystemClock
from tidelock.storage.azure import AzureStore
from tidelock.storage.contract import Create, Match, ObjectStore, Refused
from tidelock.storage.s3 import S3Store

pytestmark = pytest.mark.servers

HOUR_MS = 3_600_000


@dataclass
class WrongClock:
    """The system clock with an offset."""

    ahead_ms: int

    def now(self) -> Now:
        now = SystemClock().now()
        return Now(now.monotonic_ms, now.wall_epoch_ms + self.ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        SystemClock().sleep_ms(duration_ms)


def account_signature(server: AzureServer, *, until: str) -> str:
    """Return a shared access signature for all blobs of the account."""
    fields = {"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": "rwdlac", "se": until}
    order = [fields["sp"], fields["ss"], fields["srt"], "", fields["se"], "", "", fields["sv"], ""]
    text = "\n".join([server.account, *order, ""])
    digest = hmac.digest(base64.b64decode(server.account_key), text.encode(), "sha256")
    fields["sig"] = base64.b64encode(digest).decode()
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


def signature_store(server: AzureServer, *, until: str) -> AzureStore:
    server.create_container(BUCKET)
    settings = {
        "hoodie.write.lock.azure.sas.token": account_signature(server, until=until),
        "tidelock.azure.endpoint": server.account_url,
    }
    return AzureStore(server.account, BUCKET, uuid.uuid4().hex, settings)


def check_verbs(store: ObjectStore) -> None:
    """Use every verb once."""
    first = store.put("lock", b"one", Create())
    assert isinstance(first, Landed)
    assert isinstance(store.put("lock", b"two", Match(first.version)), Landed)
    assert store.put("lock", b"three", Match(first.version)) == Refused()
    assert [meta.key for meta in store.list("")] == ["lock"]
    assert store.head("lock") is not None
    store.delete("lock")
    assert store.get("lock") is None
    store.close()


def test_query_signature_authorizes_every_verb(azurite_server: AzureServer) -> None:
    check_verbs(signature_store(azurite_server, until="2099-01-01T00:00:00Z"))


def test_expired_signature_is_denied(azurite_server: AzureServer) -> None:
    store = signature_store(azurite_server, until="2001-01-01T00:00:00Z")
    with pytest.raises(PermissionDenied) as caught:
        store.put("lock", b"one", Create())
    assert "sig=" not in str(caught.value)
    store.close()


def test_environment_keys_authorize_every_verb(
    seaweedfs_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seaweedfs_server.create_bucket(BUCKET)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", seaweedfs_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", seaweedfs_server.secret_key)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", seaweedfs_server.endpoint)
    monkeypatch.setenv("AWS_REGION", seaweedfs_server.region)
    check_verbs(S3Store(BUCKET, uuid.uuid4().hex))


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS], ids=["fast", "slow"])
def test_clock_skew_of_an_hour_is_denied_with_a_hint(
    seaweedfs_server: S3Server, ahead_ms: int
) -> None:
    seaweedfs_server.create_bucket(BUCKET)
    settings = s3_settings(seaweedfs_server)
    store = S3Store(BUCKET, uuid.uuid4().hex, settings, clock=WrongClock(ahead_ms))
    with pytest.raises(PermissionDenied, match="clock"):
        store.put("lock", b"one", Create())
    store.close()
