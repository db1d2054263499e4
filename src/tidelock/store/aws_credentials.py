"""Where AWS keys come from: Hudi's settings first, then the chain every AWS tool uses.

botocore resolves and refreshes (profiles, SSO, web identity, instance roles); it is needed only
when the settings do not hold the keys themselves.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from tidelock.base.errors import ConfigInvalid, MissingExtra, PermissionDenied, StoreUnreachable
from tidelock.store import options
from tidelock.store.aws_signing import Keys


class KeySource(Protocol):
    """Gives the keys that are good at this moment."""

    def keys(self) -> Keys:
        """Return current keys, refreshed if need be."""
        ...

    def region(self) -> str | None:
        """Return the region named beside the keys, if any."""
        ...


def key_source(settings: Mapping[str, object]) -> KeySource:
    """Return the source that `settings` ask for."""
    access_key = options.AWS_ACCESS_KEY.value(settings)
    secret_key = options.AWS_SECRET_KEY.value(settings)
    role_arn = options.AWS_ROLE_ARN.value(settings)
    if (access_key is None) != (secret_key is None):
        raise ConfigInvalid(
            f"{options.AWS_ACCESS_KEY.key} and {options.AWS_SECRET_KEY.key} belong together,"
            " but only one is set",
            hint="set both, or neither for the usual AWS credentials",
        )
    static: Keys | None = None
    if access_key is not None and secret_key is not None:
        static = Keys(access_key, secret_key, options.AWS_SESSION_TOKEN.value(settings))
    if role_arn is not None:
        return RoleKeys(
            role_arn,
            session_name=options.AWS_ROLE_SESSION.required(settings),
            external_id=options.AWS_ROLE_EXTERNAL_ID.value(settings),
            source=static,
        )
    return StaticKeys(static) if static is not None else ChainKeys()


class StaticKeys:
    """The keys of the settings, as they are."""

    def __init__(self, keys: Keys) -> None:
        """Keep `keys`."""
        self._keys = keys

    def keys(self) -> Keys:
        """Return the keys."""
        return self._keys

    def region(self) -> str | None:
        """Return nothing: keys alone do not know a region."""
        return None


class ChainKeys:
    """Keys that botocore finds and keeps fresh."""

    def __init__(self) -> None:
        """Load botocore; look for nothing yet."""
        self._session = _botocore("botocore.session").get_session()
        self._failures = _botocore("botocore.exceptions")
        self._found: Any = None
        self._looking = threading.Lock()

    def keys(self) -> Keys:
        """Return current keys; raises `PermissionDenied` when there are none."""
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
            # Whoever hands out the keys is out of reach at the moment; that says nothing of us.
            raise StoreUnreachable(
                f"AWS credentials could not be fetched: {type(error).__name__}", hint="try again"
            ) from error
        except (self._failures.BotoCoreError, self._failures.ClientError) as error:
            raise PermissionDenied(
                f"AWS credentials were refused: {type(error).__name__}",
                hint="run `aws sts get-caller-identity` to see what AWS tools find",
            ) from error
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    def region(self) -> str | None:
        """Return the region of the environment or the profile."""
        try:
            region = self._session.get_config_variable("region")
        except self._failures.BotoCoreError as error:
            raise ConfigInvalid(
                f"the AWS profile cannot be read: {type(error).__name__}", hint="check AWS_PROFILE"
            ) from error
        return str(region) if region else None

    def _find(self) -> Any:
        found = self._session.get_credentials()
        if found is None:
            raise PermissionDenied(
                "no AWS credentials were found",
                hint=f"set AWS_PROFILE or AWS_ACCESS_KEY_ID, or {options.AWS_ACCESS_KEY.key}",
            )
        return found


class RoleKeys(ChainKeys):
    """Keys of a role, assumed with `source` or with what the chain finds, renewed in time."""

    def __init__(
        self, role_arn: str, *, session_name: str, external_id: str | None, source: Keys | None
    ) -> None:
        """Remember the role; assume it when keys are first wanted."""
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


def _botocore(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            "AWS credentials need botocore", hint="pip install 'tidelock[s3]'"
        ) from error
