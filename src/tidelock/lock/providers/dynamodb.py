"""Lock provider for DynamoDB: items of Amazon's lock client, as written by Hudi's providers.

An item has the strings `key`, `ownerName`, `leaseDuration` (ms) and `recordVersionNumber`, which
each renewal replaces; a release deletes the item. Each request is signed here and sent once: a
retry by the SDK after a lost reply would look as if another client held the lock. The token is a
counter in a separate item, `<key>/tidelock.token`, which Amazon's client ignores.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidelock.core.clock import Clock
from tidelock.core.errors import (
    ConfigInvalid,
    DataCorrupt,
    Throttled,
    Unavailable,
)
from tidelock.core.ids import IdSource
from tidelock.core.system import SystemClock, SystemIds
from tidelock.lock.config import BASE_PATH, TABLE_NAME, WAIT_TIME_MS
from tidelock.lock.providers import config
from tidelock.lock.providers.backend import Backend, BackendUnclear, LeaseTerms
from tidelock.lock.providers.json_api import (
    JsonReply,
    JsonService,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lock.providers.leased import ConfiguredProvider
from tidelock.lock.providers.path_hash import hash_of_base_path
from tidelock.lock.providers.versioned import RecordEntry, ReplaceRefused, VersionedBackend
from tidelock.storage.aws import CredentialSource, Signer, credential_source, payload_hash

_RENEWALS = 3
_TABLE_POLL_MS = 500
_TOKEN_SUFFIX = "/tidelock.token"  # noqa: S105 - the name of an item
_THROTTLED = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
)


class DynamoTable:
    """Signed requests to one table."""

    def __init__(
        self, settings: Mapping[str, object], terms: LeaseTerms, *, clock: Clock | None = None
    ) -> None:
        """Read endpoint and credentials from the settings; makes no request."""
        self._clock = clock or SystemClock()
        self._source: CredentialSource = credential_source(settings)
        self._region = (
            config.DDB_REGION.value(settings) or self._source.region() or "us-east-1"
        ).lower()
        domain = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        url = config.DDB_ENDPOINT.value(settings) or f"https://dynamodb.{self._region}.{domain}"
        self.origin = checked_origin(url, config.DDB_ENDPOINT.key)
        self.name = config.DDB_TABLE.required(settings)
        self._settings = settings
        self._signer = Signer("dynamodb")
        self._service = JsonService(
            self.origin,
            clock=self._clock,
            timeout_ms=request_timeout_ms(terms),
            credentials=self._sign,
        )

    def call(self, action: str, body: Mapping[str, Any]) -> JsonReply | BackendUnclear:
        """Send one request.

        Raises: `Throttled`; `NotFound`, `PermissionDenied`, `InvalidInput` for a final refusal.
        """
        reply = self._send(action, body)
        if isinstance(reply, BackendUnclear) or reply.ok:
            return reply
        code = error_code(reply)
        if code in _THROTTLED:
            raise Throttled(f"{self.origin}/{self.name}: {code}")
        if code in ("ConditionalCheckFailedException", "ResourceNotFoundException"):
            return reply
        raise self._service.error(reply, f"{action} of {self.name}", code)

    def _send(self, action: str, body: Mapping[str, Any]) -> JsonReply | BackendUnclear:
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"DynamoDB_20120810.{action}",
        }
        return self._service.send("POST", "/", {"TableName": self.name, **body}, headers=headers)

    def query(self, action: str, body: Mapping[str, Any]) -> JsonReply:
        """Send a request that the caller may send again."""
        reply = self.call(action, body)
        if isinstance(reply, BackendUnclear):
            raise reply.error(f"{self.origin}/{self.name}")
        return reply

    def create(self) -> None:
        """Create the table as Hudi does, unless it exists, and wait until it is active.

        Raises: `Unavailable` if that takes longer than the settings allow.
        """
        definition: dict[str, Any] = {
            "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
            "BillingMode": _billing(self._settings),
        }
        if definition["BillingMode"] == "PROVISIONED":
            definition["ProvisionedThroughput"] = {
                "ReadCapacityUnits": config.DDB_READ.required(self._settings),
                "WriteCapacityUnits": config.DDB_WRITE.required(self._settings),
            }
        reply = self._send("CreateTable", definition)
        if isinstance(reply, BackendUnclear):
            raise reply.error(self.origin)
        code = error_code(reply)
        if not reply.ok and code != "ResourceInUseException":
            raise self._service.error(reply, f"creating the table {self.name}", code)
        limit_ms = config.DDB_CREATION_MS.required(self._settings)
        until_ms = self._clock.now().monotonic_ms + limit_ms
        while not self._is_active():
            if self._clock.now().monotonic_ms >= until_ms:
                raise Unavailable(
                    f"DynamoDB table {self.name} was not active within {limit_ms} ms",
                    hint=f"raise {config.DDB_CREATION_MS.key}, or create the table first",
                )
            self._clock.sleep_ms(_TABLE_POLL_MS)

    def close(self) -> None:
        self._service.close()

    def _is_active(self) -> bool:
        found = self.query("DescribeTable", {})
        return bool(found.ok and found.body["Table"]["TableStatus"] == "ACTIVE")

    def _sign(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        headers.update(
            self._signer.sign(
                method,
                path,
                "",
                dict(headers),
                keys=self._source.keys(),
                region=self._region,
                payload=payload_hash(body, encrypted=False),
                now_epoch_ms=self._clock.now().wall_epoch_ms,
            )
        )


class DynamoRegister:
    """One item. `RecordEntry.holder` is the attempt; `ownerName` is host name plus attempt."""

    def __init__(self, table: DynamoTable, key: str, ids: IdSource) -> None:
        self._table = table
        self._key = key
        self._ids = ids
        self._host = socket.gethostname()
        self.uri = f"dynamodb://{table.origin.partition('://')[2]}/{table.name}/{key}"

    def read(self) -> RecordEntry | None:
        """Read the item with strong consistency."""
        found = self._table.query("GetItem", {"Key": _key(self._key), "ConsistentRead": True})
        if not found.ok:
            self._table.create()
            return None
        item = found.body.get("Item")
        return None if item is None else self._entry(item)

    def write(
        self, entry: RecordEntry, expected: RecordEntry | None
    ) -> RecordEntry | ReplaceRefused | BackendUnclear:
        """Put the item, or delete it if `entry` has no holder."""
        written = replace(entry, version=self._ids.uuid())
        if entry.holder:
            item = {
                "key": {"S": self._key},
                "ownerName": {"S": self._host + entry.holder},
                "leaseDuration": {"S": str(entry.duration_ms)},
                "recordVersionNumber": {"S": written.version},
            }
            reply = self._table.call("PutItem", {"Item": item, **_condition(expected)})
        else:
            reply = self._table.call("DeleteItem", {"Key": _key(self._key), **_condition(expected)})
        if isinstance(reply, BackendUnclear):
            return reply
        return written if reply.ok else ReplaceRefused()

    def next_token(self, entry: RecordEntry) -> int:
        """Increment the counter item."""
        del entry
        body = {
            "Key": _key(self._key + _TOKEN_SUFFIX),
            "UpdateExpression": "ADD #t :one",
            "ExpressionAttributeNames": {"#t": "token"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "UPDATED_NEW",
        }
        # A lost reply skips a number; the next one is larger.
        return int(self._table.query("UpdateItem", body).body["Attributes"]["token"]["N"])

    def close(self) -> None:
        self._table.close()

    def _entry(self, item: Mapping[str, Any]) -> RecordEntry:
        try:
            owner = str(item["ownerName"]["S"])
            duration_ms = int(item["leaseDuration"]["S"])
            version = str(item["recordVersionNumber"]["S"])
        except (KeyError, ValueError) as error:
            raise DataCorrupt(
                f"{self.uri}: expected an item of the lock client: {error}",
                hint="use a table or key that is only used for locks",
            ) from error
        holder = "" if "isReleased" in item else owner.removeprefix(self._host)
        return RecordEntry(holder, duration_ms, 0, version)


class DynamoDbLockProvider(ConfiguredProvider):
    """Hudi's `DynamoDBBasedLockProvider`: the key is `…partition_key`, or the table name."""

    def open_backend(self, settings: Mapping[str, object]) -> Backend:
        _billing(settings)
        # As in Hudi, the waiting time is the lease, and a third of it the heartbeat interval.
        validity_ms = WAIT_TIME_MS.required(settings)
        terms = LeaseTerms(validity_ms, max(1, validity_ms // _RENEWALS))
        register = DynamoRegister(DynamoTable(settings, terms), self.key_of(settings), SystemIds())
        return VersionedBackend(register, terms)

    @staticmethod
    def key_of(settings: Mapping[str, object]) -> str:
        named = config.first_set(settings, config.RESOURCE, config.DDB_PARTITION_KEY, TABLE_NAME)
        return named or config.DDB_PARTITION_KEY.required(settings)


class ImplicitKeyDynamoDbLockProvider(DynamoDbLockProvider):
    """Hudi's provider with an implicit partition key: the key is a hash of the base path."""

    @staticmethod
    def key_of(settings: Mapping[str, object]) -> str:
        return hash_of_base_path(BASE_PATH.required(settings))


def _billing(settings: Mapping[str, object]) -> str:
    mode = config.DDB_BILLING.required(settings).upper()
    if mode not in ("PAY_PER_REQUEST", "PROVISIONED"):
        raise ConfigInvalid(
            f"{config.DDB_BILLING.key}: expected PAY_PER_REQUEST or PROVISIONED, got {mode!r}",
            hint="use PAY_PER_REQUEST or PROVISIONED",
        )
    return mode


def _key(value: str) -> dict[str, Any]:
    return {"key": {"S": value}}


def _condition(expected: RecordEntry | None) -> dict[str, Any]:
    """L4: require that the item is absent, or has exactly the expected version."""
    if expected is None:
        return {
            "ConditionExpression": "attribute_not_exists(#k)",
            "ExpressionAttributeNames": {"#k": "key"},
        }
    return {
        "ConditionExpression": "attribute_exists(#k) AND #v = :v",
        "ExpressionAttributeNames": {"#k": "key", "#v": "recordVersionNumber"},
        "ExpressionAttributeValues": {":v": {"S": expected.version}},
    }


def error_code(reply: JsonReply) -> str:
    return str(reply.body.get("__type", "")).rpartition("#")[2]
