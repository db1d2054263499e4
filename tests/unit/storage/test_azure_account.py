"""Selection of the Azure account and its credentials, and signing of requests."""

from __future__ import annotations

import base64
import hmac
import sys
from dataclasses import dataclass

import azure.core.exceptions
import azure.identity
import pytest

from tidelock.core.clock import Now
from tidelock.core.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.storage.azure import Account, BearerToken, SharedKey, account
from tidelock.storage.cloud import UnsignedRequest

HOST = "acct.dfs.core.windows.net"
KEY = base64.b64encode(b"the key").decode()
PREFIX = "hoodie.write.lock.azure"
REQUEST = UnsignedRequest("GET", "/lake/key", {}, {})


@dataclass
class StillClock:
    """A clock that does not advance."""

    epoch_ms: int = 1_700_000_000_000

    def now(self) -> Now:
        return Now(self.epoch_ms, self.epoch_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.epoch_ms += int(duration_ms)


@dataclass
class FakeToken:
    """A token of azure-identity."""

    token: str
    expires_on: int


class FakeCredential:
    """A credential of azure-identity that records its arguments."""

    made: tuple[str, ...] = ()
    fails: Exception | None = None
    calls = 0

    def get_token(self, scope: str) -> FakeToken:
        assert scope == "https://storage.azure.com/.default"
        if self.fails is not None:
            raise self.fails
        self.calls += 1
        return FakeToken(f"token-{self.calls}", 1_700_000_000 + 3_600 * self.calls)


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the credentials that were created."""
    seen: list[tuple[str, ...]] = []
    for name in ("ManagedIdentityCredential", "ClientSecretCredential", "DefaultAzureCredential"):

        def make(*args: str, kind: str = name, **options: str) -> FakeCredential:
            seen.append((kind, *args, *options.values()))
            return FakeCredential()

        monkeypatch.setattr(azure.identity, name, make)
    return seen


def resolved(settings: dict[str, object], host: str = HOST) -> Account:
    return account(host, settings, StillClock())


def test_connection_string_has_account_key_and_endpoint() -> None:
    found = resolved({f"{PREFIX}.connection.string": f"AccountName=other;AccountKey={KEY}"})
    assert (found.origin, found.base) == ("https://other.blob.core.windows.net", "")
    headers = found.authorizer.headers(REQUEST)
    assert headers["authorization"].startswith("SharedKey other:")


@pytest.mark.parametrize(
    ("text", "origin", "base"),
    [
        (
            f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={KEY};EndpointSuffix=x.cn",
            "http://a.blob.x.cn",
            "",
        ),
        (
            f"AccountName=a;AccountKey={KEY};BlobEndpoint=http://127.0.0.1:1234/a;",
            "http://127.0.0.1:1234",
            "/a",
        ),
        ("UseDevelopmentStorage=true", "http://127.0.0.1:10000", "/devstoreaccount1"),
    ],
)
def test_connection_string_can_have_an_endpoint(text: str, origin: str, base: str) -> None:
    found = resolved({f"{PREFIX}.connection.string": text})
    assert (found.origin, found.base) == (origin, base)


def test_connection_string_can_have_a_signature() -> None:
    text = "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D"
    found = resolved({f"{PREFIX}.connection.string": text})
    assert (found.base, found.secret_query) == ("", "sv=1&sig=x%3D")
    assert found.authorizer.headers(REQUEST) == {}


@pytest.mark.parametrize(
    "text", ["AccountName=a", f"AccountKey={KEY}", "nonsense", "AccountName=a;AccountKey=%%%"]
)
def test_incomplete_connection_string_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        resolved({f"{PREFIX}.connection.string": text})
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        (HOST, "https://acct.blob.core.windows.net"),
        ("acct.blob.core.windows.net", "https://acct.blob.core.windows.net"),
        ("acct.dfs.core.chinacloudapi.cn", "https://acct.blob.core.chinacloudapi.cn"),
        ("lake.example.org", "https://lake.example.org"),
    ],
)
def test_account_is_reached_at_its_blob_host(host: str, origin: str) -> None:
    assert resolved({f"{PREFIX}.sas.token": "sig=x"}, host).origin == origin


def test_order_of_credentials_matches_hudi(created: list[tuple[str, ...]]) -> None:
    principal = {
        f"{PREFIX}.client.tenant.id": "tenant",
        f"{PREFIX}.client.id": "id",
        f"{PREFIX}.client.secret": "secret",
    }
    managed = {**principal, f"{PREFIX}.managed.identity.client.id": "me"}
    signature = {**managed, f"{PREFIX}.sas.token": "?sig=x"}
    connection = {**signature, f"{PREFIX}.connection.string": f"AccountName=a;AccountKey={KEY}"}
    resolved({})
    resolved({f"{PREFIX}.client.tenant.id": "tenant", f"{PREFIX}.client.id": "id"})
    resolved(dict(principal))
    resolved(dict(managed))
    assert [kind for kind, *_ in created] == [
        "DefaultAzureCredential",
        "DefaultAzureCredential",
        "ClientSecretCredential",
        "ManagedIdentityCredential",
    ]
    assert created[2][1:] == ("tenant", "id", "secret")
    assert created[3][1:] == ("me",)
    assert resolved(dict(signature)).secret_query == "sig=x"
    assert isinstance(resolved(dict(connection)).authorizer, SharedKey)
    assert len(created) == 4


@pytest.mark.usefixtures("created")
def test_connection_string_in_the_environment_is_only_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=env;AccountKey={KEY}")
    assert resolved({}).origin == "https://env.blob.core.windows.net"
    assert resolved({f"{PREFIX}.sas.token": "sig=x"}).secret_query == "sig=x"
    assert resolved({f"{PREFIX}.managed.identity.client.id": "me"}).origin.startswith(
        "https://acct."
    )


def test_missing_azure_identity_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(azure, "identity")
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidelock\[azure\]'"):
        resolved({})


def test_token_is_not_sent_unencrypted() -> None:
    with pytest.raises(ConfigInvalid, match="unencrypted"):
        resolved({"tidelock.azure.endpoint": "http://host:10000"})


def test_token_is_cached_until_shortly_before_its_expiry() -> None:
    clock, credential = StillClock(), FakeCredential()
    bearer = BearerToken(credential, clock)
    assert bearer.headers(REQUEST) == {"authorization": "Bearer token-1"}
    clock.epoch_ms += 3_200_000
    assert bearer.headers(REQUEST) == {"authorization": "Bearer token-1"}
    clock.epoch_ms += 200_000
    assert bearer.headers(REQUEST) == {"authorization": "Bearer token-2"}


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (azure.core.exceptions.ClientAuthenticationError("no"), PermissionDenied),
        (azure.core.exceptions.ServiceRequestError("no"), StoreUnreachable),
    ],
)
def test_unavailable_token_is_an_error(failure: Exception, kind: type[Exception]) -> None:
    credential = FakeCredential()
    credential.fails = failure
    with pytest.raises(kind):
        BearerToken(credential, StillClock()).headers(REQUEST)


def test_string_to_sign_matches_the_azure_documentation() -> None:
    # The example of "Authorize with Shared Key", with a container of the account.
    request = UnsignedRequest(
        "GET",
        "/mycontainer",
        {"restype": "container", "comp": "metadata", "timeout": "20"},
        {
            "x-ms-date": "Fri, 26 Jun 2015 23:39:12 GMT",
            "x-ms-version": "2015-02-21",
            "content-length": "0",
        },
    )
    signed = SharedKey("myaccount", KEY)
    text = (
        "GET\n\n\n\n\n\n\n\n\n\n\n\n"
        "x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
        "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
    )
    assert signed.string_to_sign(request) == text
    digest = base64.b64encode(hmac.digest(b"the key", text.encode(), "sha256")).decode()
    assert signed.headers(request) == {"authorization": f"SharedKey myaccount:{digest}"}
