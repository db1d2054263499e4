"""Endpoints, request signatures and credentials of S3 on AWS and compatible servers."""

from __future__ import annotations

import hashlib
import hmac
import importlib
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from tidelock.core.errors import (
    ConfigInvalid,
    MissingExtra,
    PermissionDenied,
    ResourceInvalid,
    StoreUnreachable,
    Unsupported,
)
from tidelock.storage import config
from tidelock.storage.http import parse_endpoint

AWS_REGION_DEFAULT = "us-east-1"


@dataclass(frozen=True, slots=True)
class BucketEndpoint:
    """The host of a bucket, the path before each key, and the region of signatures."""

    origin: str
    host: str
    base: str
    region: str


def aws_address(bucket: str, region: str) -> BucketEndpoint:
    """Return the address of `bucket` on AWS."""
    if bucket.endswith("--x-s3"):
        raise Unsupported(
            f"s3://{bucket} is a directory bucket, which is not supported",
            hint="use a general purpose bucket",
        )
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    service = f"s3.{region}.{domain}"
    # The wildcard certificate of AWS does not cover a bucket with a dot in its name.
    if "." in bucket:
        return BucketEndpoint(f"https://{service}", service, f"/{quote(bucket, safe='')}", region)
    host = f"{_host_label(bucket)}.{service}"
    return BucketEndpoint(f"https://{host}", host, "", region)


def server_address(endpoint: str, bucket: str, region: str, *, path_style: bool) -> BucketEndpoint:
    """Return the address of `bucket` on the server at `endpoint`."""
    endpoint = endpoint if "://" in endpoint else f"https://{endpoint}"
    url = parse_endpoint(endpoint, "the S3 endpoint", hint="for example https://host:port")
    base = url.path.rstrip("/")
    if path_style:
        base, host = f"{base}/{quote(bucket, safe='')}", url.netloc
    else:
        host = f"{_host_label(bucket)}.{url.netloc}"
    without_port = host.removesuffix(":443" if url.scheme == "https" else ":80")
    return BucketEndpoint(f"{url.scheme}://{host}", without_port, base, region)


def _host_label(bucket: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", bucket):
        raise ResourceInvalid(
            f"s3://{bucket}: a bucket name has only letters, digits, dots and hyphens",
            hint="correct the name of the bucket",
        )
    return bucket


_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """Credentials; the repr omits the secrets."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def canonical_query(parameters: Mapping[str, str]) -> str:
    """Return `parameters` encoded and sorted, as the URL and the signature require."""
    encoded = ((quote(name, safe=""), quote(value, safe="")) for name, value in parameters.items())
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def payload_hash(body: bytes | None, *, encrypted: bool) -> str:
    """Return the hash of the body for the signature.

    TLS protects the body; without TLS the signature must cover it.
    """
    if not body:
        return _EMPTY_SHA256
    return UNSIGNED_PAYLOAD if encrypted else hashlib.sha256(body).hexdigest()


class Signer:
    """Signs requests for one service; safe to share between threads."""

    def __init__(self, service: str = "s3") -> None:
        """Start without a derived key."""
        self._service = service
        self._derived: tuple[tuple[str, str, str], bytes] = (("", "", ""), b"")

    def sign(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[str, str],
        *,
        keys: AwsCredentials,
        region: str,
        payload: str,
        now_epoch_ms: int,
    ) -> dict[str, str]:
        """Return `headers` (lower-case names, with `host`) with those of the signature."""
        timestamp = datetime.fromtimestamp(now_epoch_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {**headers, "x-amz-content-sha256": payload, "x-amz-date": timestamp}
        if keys.session_token is not None:
            signed["x-amz-security-token"] = keys.session_token
        names = sorted(signed)
        lines = "".join(f"{name}:{' '.join(signed[name].split())}\n" for name in names)
        listed = ";".join(names)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{listed}\n{payload}"
        scope = f"{timestamp[:8]}/{region}/{self._service}/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = self._key(keys.secret_key, timestamp[:8], region)
        signature = hmac.digest(
            key, f"{_ALGORITHM}\n{timestamp}\n{scope}\n{digest}".encode(), "sha256"
        ).hex()
        signed["authorization"] = (
            f"{_ALGORITHM} Credential={keys.access_key}/{scope}, "
            f"SignedHeaders={listed}, Signature={signature}"
        )
        return signed

    def _key(self, secret_key: str, day: str, region: str) -> bytes:
        inputs = (secret_key, day, region)
        # The tuple is read and replaced atomically, so threads never see a mixed pair.
        known, key = self._derived
        if known != inputs:
            key = f"AWS4{secret_key}".encode()
            for part in (day, region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (inputs, key)
        return key


def credential_source(settings: Mapping[str, object]) -> CredentialSource:
    """Return the source of keys that the settings select. Raises: `ConfigInvalid`."""
    access_key = config.AWS_ACCESS_KEY.value(settings)
    secret_key = config.AWS_SECRET_KEY.value(settings)
    role_arn = config.AWS_ROLE_ARN.value(settings)
    if (access_key is None) != (secret_key is None):
        raise ConfigInvalid(
            f"{config.AWS_ACCESS_KEY.key} and {config.AWS_SECRET_KEY.key}: only one of them is set",
            hint="set both, or neither to use the default AWS credentials",
        )
    static = None
    if access_key is not None and secret_key is not None:
        static = AwsCredentials(access_key, secret_key, config.AWS_SESSION_TOKEN.value(settings))
    if role_arn is not None:
        return RoleCredentials(
            role_arn,
            session_name=config.AWS_ROLE_SESSION.required(settings),
            external_id=config.AWS_ROLE_EXTERNAL_ID.value(settings),
            source=static,
        )
    return StaticCredentials(static) if static is not None else ChainCredentials()


class StaticCredentials:
    """The keys in the settings."""

    def __init__(self, keys: AwsCredentials) -> None:
        """Store the keys."""
        self._keys = keys

    def keys(self) -> AwsCredentials:
        """Return the keys."""
        return self._keys

    def region(self) -> str | None:
        """Return None: keys have no region."""
        return None


class ChainCredentials:
    """Keys of the default AWS credential chain, refreshed by botocore."""

    def __init__(self) -> None:
        """Import botocore; credentials are looked up on first use."""
        self._session = _botocore("botocore.session").get_session()
        self._failures = _botocore("botocore.exceptions")
        self._found: Any = None
        self._looking = threading.Lock()

    def keys(self) -> AwsCredentials:
        """Return valid keys. Raises: `PermissionDenied`, `StoreUnreachable`."""
        try:
            with self._looking:
                if self._found is None:
                    self._found = self._find()
            frozen = self._found.get_frozen_credentials()
        except (
            self._failures.ConnectionError,
            self._failures.HTTPClientError,
            self._failures.MetadataRetrievalError,
            self._failures.CredentialRetrievalError,
        ) as error:
            # The credential service is unreachable; that says nothing about our permissions.
            raise StoreUnreachable(
                f"cannot fetch AWS credentials: {type(error).__name__}", hint="try again"
            ) from error
        except (self._failures.BotoCoreError, self._failures.ClientError) as error:
            raise PermissionDenied(
                f"AWS credentials were refused: {type(error).__name__}",
                hint="run `aws sts get-caller-identity` to check the AWS configuration",
            ) from error
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def region(self) -> str | None:
        """Return the region of the environment or the profile."""
        try:
            region = self._session.get_config_variable("region")
        except self._failures.BotoCoreError as error:
            raise ConfigInvalid(
                f"cannot read the AWS profile: {type(error).__name__}", hint="check AWS_PROFILE"
            ) from error
        return str(region) if region else None

    def _find(self) -> Any:
        found = self._session.get_credentials()
        if found is None:
            raise PermissionDenied(
                "no AWS credentials found",
                hint=f"set AWS_PROFILE or AWS_ACCESS_KEY_ID, or {config.AWS_ACCESS_KEY.key}",
            )
        return found


class RoleCredentials(ChainCredentials):
    """Keys of a role, assumed with `source` or the default chain, and renewed in time."""

    def __init__(
        self,
        role_arn: str,
        *,
        session_name: str,
        external_id: str | None,
        source: AwsCredentials | None,
    ) -> None:
        """Store the role; it is assumed on first use."""
        super().__init__()
        self._role_arn = role_arn
        self._arguments = {"RoleSessionName": session_name}
        if external_id is not None:
            self._arguments["ExternalId"] = external_id
        self._source = source

    def _find(self) -> Any:
        credentials = _botocore("botocore.credentials")
        if self._source is None:
            source = super()._find()
        else:
            static = self._source
            source = credentials.Credentials(
                static.access_key, static.secret_key, static.session_token
            )
        fetcher = credentials.AssumeRoleCredentialFetcher(
            client_creator=partial(
                self._session.create_client, region_name=self.region() or "us-east-1"
            ),
            source_credentials=source,
            role_arn=self._role_arn,
            extra_args=self._arguments,
        )
        return credentials.DeferredRefreshableCredentials(
            method="assume-role", refresh_using=fetcher.fetch_credentials
        )


CredentialSource = StaticCredentials | ChainCredentials


def _botocore(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            "AWS credentials need botocore", hint="pip install 'tidelock[s3]'"
        ) from error
