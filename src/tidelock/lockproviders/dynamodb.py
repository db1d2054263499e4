"""DynamoDB: the items of Amazon's lock client, as Hudi's providers write them.

An item has the strings `key`, `ownerName`, `leaseDuration` (ms) and `recordVersionNumber`, which
each renewal replaces; a release deletes it. Requests are signed and sent by ourselves, once: the
SDK's retries would turn a lost reply into a false "somebody else has it".
The token is a counter in an item of its own, `<key>/tidelock.token`, which Amazon's client ignores.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidelock.base.clock import Clock, SystemClock
from tidelock.base.errors import (
    ConfigInvalid,
    DataCorrupt,
    StoreUnreachable,
    Throttled,
    Unavailable,
)
from tidelock.base.ids import IdSource, SystemIds
from tidelock.base.metrics import Metrics
from tidelock.lock.config import BASE_PATH, WAIT_TIME_MS
from tidelock.lock.provider import Features
from tidelock.lockproviders import keys
from tidelock.lockproviders.backend import Terms, Unclear
from tidelock.lockproviders.jsonservice import (
    JsonService,
    Said,
    checked_origin,
    request_timeout_ms,
)
from tidelock.lockproviders.leased import LeasedProvider
from tidelock.lockproviders.pace import Pace
from tidelock.lockproviders.pathhash import hash_of_base_path
from tidelock.lockproviders.versioned import Entry, Refused, VersionedBackend
from tidelock.store.aws_credentials import KeySource, key_source
from tidelock.store.aws_signing import Signer, payload_hash

FEATURES = Features(blocking_wait=True, fencing_token=True, force_release=True)
_RENEWALS = 3
_TABLE_POLL_MS = 500
_TOKEN_SUFFIX = "/tidelock.token"  # noqa: S105 - the name of an item
_THROTTLED = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
)


class DynamoTable:
    """Requests to one table, signed."""

    def __init__(
        self, settings: Mapping[str, object], terms: Terms, *, clock: Clock | None = None
    ) -> None:
        """Find out where and as whom; send nothing yet."""
        self._clock = clock or SystemClock()
        self._source: KeySource = key_source(settings)
        self._region = (
            keys.DDB_REGION.value(settings) or self._source.region() or "us-east-1"
        ).lower()
        domain = "amazonaws.com.cn" if self._region.startswith("cn-") else "amazonaws.com"
        url = keys.DDB_ENDPOINT.value(settings) or f"https://dynamodb.{self._region}.{domain}"
        self.origin = checked_origin(url, keys.DDB_ENDPOINT.key)
        self.name = keys.DDB_TABLE.required(settings)
        self._settings = settings
        self._signer = Signer("dynamodb")
        self._service = JsonService(
            self.origin,
            clock=self._clock,
            timeout_ms=request_timeout_ms(terms),
            credentials=self._sign,
        )

    def call(self, action: str, body: Mapping[str, Any]) -> Said | Unclear:
        """Send one request.

        Raises: `Throttled`; `NotFound`, `PermissionDenied`, `InvalidInput` for a final refusal.
        """
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": f"DynamoDB_20120810.{action}",
        }
        reply = self._service.tell("POST", "/", {"TableName": self.name, **body}, headers=headers)
        if isinstance(reply, Unclear) or reply.ok:
            return reply
        code = error_code(reply)
        if code in _THROTTLED:
            raise Throttled(f"{self.origin}/{self.name}: {code}")
        if code in ("ConditionalCheckFailedException", "ResourceNotFoundException"):
            return reply
        raise self._service.refusal(reply, f"{action} of {self.name}", code)

    def ask(self, action: str, body: Mapping[str, Any]) -> Said:
        """Send a request that may be sent again by the caller."""
        reply = self.call(action, body)
        if isinstance(reply, Unclear):
            raise StoreUnreachable(f"{self.origin}/{self.name}: {reply.cause}", hint="try again")
        return reply

    def create(self) -> None:
        """Create the table as Hudi does, if nobody else has, and wait until it is active.

        Raises: `Unavailable` when it takes longer than the settings allow.
        """
        made: dict[str, Any] = {
            "AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}],
            "BillingMode": _billing(self._settings),
        }
        if made["BillingMode"] == "PROVISIONED":
            made["ProvisionedThroughput"] = {
                "ReadCapacityUnits": keys.DDB_READ.required(self._settings),
                "WriteCapacityUnits": keys.DDB_WRITE.required(self._settings),
            }
        headers = {
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": "DynamoDB_20120810.CreateTable",
        }
        reply = self._service.ask("POST", "/", {"TableName": self.name, **made}, headers=headers)
        code = error_code(reply)
        if not reply.ok and code != "ResourceInUseException":
            raise self._service.refusal(reply, f"creating the table {self.name}", code)
        limit_ms = keys.DDB_CREATION_MS.required(self._settings)
        until_ms = self._clock.now().monotonic_ms + limit_ms
        while not self._is_active():
            if self._clock.now().monotonic_ms >= until_ms:
                raise Unavailable(
                    f"the table {self.name} was not active within {limit_ms} ms",
                    hint=f"raise {keys.DDB_CREATION_MS.key}, or create the table beforehand",
                )
            self._clock.sleep_ms(_TABLE_POLL_MS)

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _is_active(self) -> bool:
        found = self.ask("DescribeTable", {})
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
    """One item. `Entry.holder` is the attempt; `ownerName` puts the host before it."""

    def __init__(self, table: DynamoTable, key: str, ids: IdSource) -> None:
        """Stand for the item `key`."""
        self._table = table
        self._key = key
        self._ids = ids
        self._host = socket.gethostname()
        self.uri = f"dynamodb://{table.origin.partition('://')[2]}/{table.name}/{key}"

    def read(self) -> Entry | None:
        """Read the item, consistently."""
        found = self._table.ask("GetItem", {"Key": _key(self._key), "ConsistentRead": True})
        if not found.ok:
            self._table.create()
            return None
        item = found.body.get("Item")
        return None if item is None else self._entry(item)

    def write(self, entry: Entry, over: Entry | None) -> Entry | Refused | Unclear:
        """Put the item, or delete it when nobody is to hold it."""
        written = replace(entry, version=self._ids.uuid())
        if entry.holder:
            item = {
                "key": {"S": self._key},
                "ownerName": {"S": self._host + entry.holder},
                "leaseDuration": {"S": str(entry.duration_ms)},
                "recordVersionNumber": {"S": written.version},
            }
            reply = self._table.call("PutItem", {"Item": item, **_condition(over)})
        else:
            reply = self._table.call("DeleteItem", {"Key": _key(self._key), **_condition(over)})
        if isinstance(reply, Unclear):
            return reply
        return written if reply.ok else Refused()

    def draw_token(self, entry: Entry) -> int:
        """Add one to the counter beside the item."""
        del entry
        body = {
            "Key": _key(self._key + _TOKEN_SUFFIX),
            "UpdateExpression": "ADD #t :one",
            "ExpressionAttributeNames": {"#t": "token"},
            "ExpressionAttributeValues": {":one": {"N": "1"}},
            "ReturnValues": "UPDATED_NEW",
        }
        # A number drawn by a request whose answer was lost is skipped; the next one is larger.
        return int(self._table.ask("UpdateItem", body).body["Attributes"]["token"]["N"])

    def close(self) -> None:
        """Close the connections."""
        self._table.close()

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        try:
            owner = str(item["ownerName"]["S"])
            duration_ms = int(item["leaseDuration"]["S"])
            version = str(item["recordVersionNumber"]["S"])
        except (KeyError, ValueError) as error:
            raise DataCorrupt(
                f"{self.uri} is not an item of the lock client: {error}",
                hint="use a table, or a key, of the locks' own",
            ) from error
        released = "isReleased" in item
        return Entry("" if released else owner.removeprefix(self._host), duration_ms, 0, version)


class DynamoDbLockProvider(LeasedProvider):
    """Hudi's `DynamoDBBasedLockProvider`: the key is `…partition_key`, or the table's name."""

    def __init__(
        self,
        settings: Mapping[str, object],
        metrics: Metrics | None = None,
        *,
        bind_thread: bool = True,
    ) -> None:
        """Read and check the settings; touch nothing."""
        _billing(settings)
        # Hudi takes the waiting time for the lease; a third of it is its heartbeat.
        validity_ms = WAIT_TIME_MS.required(settings)
        terms = Terms(validity_ms, max(1, validity_ms // _RENEWALS))
        register = DynamoRegister(DynamoTable(settings, terms), self.key_of(settings), SystemIds())
        backend = VersionedBackend(register, terms, FEATURES)
        pace = Pace.read(settings)
        super().__init__(backend, pace=pace, metrics=metrics, bind_thread=bind_thread)

    @staticmethod
    def key_of(settings: Mapping[str, object]) -> str:
        """Return the value of the item's key."""
        for key in (keys.RESOURCE, keys.DDB_PARTITION_KEY, keys.TABLE_NAME):
            value = key.value(settings)
            if value:
                return value
        return keys.DDB_PARTITION_KEY.required(settings)


class ImplicitKeyDynamoDbLockProvider(DynamoDbLockProvider):
    """Hudi's provider with an implicit partition key: the key is a hash of the base path."""

    @staticmethod
    def key_of(settings: Mapping[str, object]) -> str:
        """Return the hash."""
        return hash_of_base_path(BASE_PATH.required(settings))


def _billing(settings: Mapping[str, object]) -> str:
    mode = keys.DDB_BILLING.required(settings).upper()
    if mode not in ("PAY_PER_REQUEST", "PROVISIONED"):
        raise ConfigInvalid(
            f"{keys.DDB_BILLING.key} = {mode!r} is not a billing mode",
            hint="use PAY_PER_REQUEST or PROVISIONED",
        )
    return mode


def _key(value: str) -> dict[str, Any]:
    return {"key": {"S": value}}


def _condition(over: Entry | None) -> dict[str, Any]:
    """L4: nothing there, or exactly the version that was read."""
    if over is None:
        return {
            "ConditionExpression": "attribute_not_exists(#k)",
            "ExpressionAttributeNames": {"#k": "key"},
        }
    return {
        "ConditionExpression": "attribute_exists(#k) AND #v = :v",
        "ExpressionAttributeNames": {"#k": "key", "#v": "recordVersionNumber"},
        "ExpressionAttributeValues": {":v": {"S": over.version}},
    }


def error_code(reply: Said) -> str:
    """Return the name of the error in an answer; empty when there is none."""
    return str(reply.body.get("__type", "")).rpartition("#")[2]
