"""Which Azure account is used, by whose right, and how a request is signed for it."""

from __future__ import annotations

import base64
import hmac
import sys
from dataclasses import dataclass

import azure.core.exceptions
import azure.identity
import pytest

from tidelock.base.clock import Now
from tidelock.base.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.store.azure_account import Account, account
from tidelock.store.azure_signing import BearerToken, SharedKey, Unsigned

HOST = "acct.dfs.core.windows.net"
KEY = base64.b64encode(b"the key").decode()
PREFIX = "hoodie.write.lock.azure"
REQUEST = Unsigned("GET", "/lake/key", {}, {})


@dataclass
class StillClock:
    """A clock that stands where it is put."""

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
    """A credential of azure-identity that remembers how it was made."""

    made: tuple[str, ...] = ()
    fails: Exception | None = None
    asked = 0

    def get_token(self, scope: str) -> FakeToken:
        assert scope == "https://storage.azure.com/.default"
        if self.fails is not None:
            raise self.fails
        self.asked += 1
        return FakeToken(f"token-{self.asked}", 1_700_000_000 + 3_600 * self.asked)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return which credentials were made."""
    seen: list[tuple[str, ...]] = []
    for name in ("ManagedIdentityCredential", "ClientSecretCredential", "DefaultAzureCredential"):

        def make(*args: str, kind: str = name, **options: str) -> FakeCredential:
            seen.append((kind, *args, *options.values()))
            return FakeCredential()

        monkeypatch.setattr(azure.identity, name, make)
    return seen


def resolved(settings: dict[str, object], host: str = HOST) -> Account:
    return account(host, settings, StillClock())


def test_a_connection_string_names_account_key_and_end_point() -> None:
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
def test_a_connection_string_may_name_its_end_point(text: str, origin: str, base: str) -> None:
    found = resolved({f"{PREFIX}.connection.string": text})
    assert (found.origin, found.base) == (origin, base)


def test_a_connection_string_may_hold_a_signature() -> None:
    text = "BlobEndpoint=https://a.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D"
    found = resolved({f"{PREFIX}.connection.string": text})
    assert (found.base, found.secret_query) == ("", "sv=1&sig=x%3D")
    assert found.authorizer.headers(REQUEST) == {}


@pytest.mark.parametrize(
    "text", ["AccountName=a", f"AccountKey={KEY}", "nonsense", "AccountName=a;AccountKey=%%%"]
)
def test_a_connection_string_that_is_not_whole_is_refused_without_showing_it(text: str) -> None:
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
def test_an_account_is_reached_at_its_blob_host(host: str, origin: str) -> None:
    assert resolved({f"{PREFIX}.sas.token": "sig=x"}, host).origin == origin


def test_the_order_of_credentials_is_that_of_hudi(made: list[tuple[str, ...]]) -> None:
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
    assert [kind for kind, *_ in made] == [
        "DefaultAzureCredential",
        "DefaultAzureCredential",
        "ClientSecretCredential",
        "ManagedIdentityCredential",
    ]
    assert made[2][1:] == ("tenant", "id", "secret")
    assert made[3][1:] == ("me",)
    assert resolved(dict(signature)).secret_query == "sig=x"
    assert isinstance(resolved(dict(connection)).authorizer, SharedKey)
    assert len(made) == 4


@pytest.mark.usefixtures("made")
def test_a_connection_string_of_the_environment_is_the_default_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"AccountName=env;AccountKey={KEY}")
    assert resolved({}).origin == "https://env.blob.core.windows.net"
    assert resolved({f"{PREFIX}.sas.token": "sig=x"}).secret_query == "sig=x"
    assert resolved({f"{PREFIX}.managed.identity.client.id": "me"}).origin.startswith(
        "https://acct."
    )


def test_azure_identity_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(azure, "identity")
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(MissingExtra, match=r"pip install 'tidelock\[azure\]'"):
        resolved({})


def test_a_token_does_not_travel_unencrypted() -> None:
    with pytest.raises(ConfigInvalid, match="unencrypted"):
        resolved({"tidelock.azure.endpoint": "http://host:10000"})


def test_a_token_is_kept_until_shortly_before_its_end() -> None:
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
def test_a_token_that_does_not_come_is_an_error(failure: Exception, kind: type[Exception]) -> None:
    credential = FakeCredential()
    credential.fails = failure
    with pytest.raises(kind):
        BearerToken(credential, StillClock()).headers(REQUEST)


def test_the_text_signed_with_a_key_is_the_one_azure_documents() -> None:
    # The example of "Authorize with Shared Key", with a container of the account.
    request = Unsigned(
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
