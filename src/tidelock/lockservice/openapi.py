"""The OpenAPI description of the HTTP API. Pure."""

from __future__ import annotations

from typing import Any

from tidelock.base.limits import RESOURCE_ID_BYTES_MAX

_TEXT = {"type": "string"}
_ID = {"type": "string", "minLength": 1, "maxLength": RESOURCE_ID_BYTES_MAX}
_DURATION = {"type": "string", "description": "a Go duration: 30s, 1m30s, 500ms", "example": "30s"}
_FLAG = {"type": "boolean"}
_WHOLE = {"type": "integer", "format": "int64"}
_RESOURCE = {
    "name": "resource",
    "in": "path",
    "required": True,
    "schema": _ID,
    "description": "percent-encoded; it never becomes a path",
}
_STORE = {
    "name": "store",
    "in": "query",
    "schema": _TEXT,
    "description": "the lock store; the only one, or the one named default, when absent",
}
_STORE_PART = {"name": "store", "in": "path", "required": True, "schema": _ID}


def _object(fields: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "properties": fields}
    if required:
        shape["required"] = list(required)
    return shape


_GRANT = _object(
    {
        "lockID": _TEXT,
        "token": _WHOLE,
        "ttl": _DURATION,
        "since": _WHOLE,
    },
    ("lockID", "token"),
)
_ERROR = _object({"errorCode": _TEXT, "message": _TEXT, "hint": _TEXT}, ("errorCode", "message"))
_ERRORS = {
    "400": "the request is wrong",
    "401": "the API token is missing or wrong",
    "403": "this principal may not do that",
    "404": "the lock does not exist, or has another id",
    "405": "no such method",
    "409": "the resource is already locked, or the wait is over",
    "429": "too many requests, waiters or streams",
    "500": "an error of the service or its store",
    "503": "the service cannot reach its store, or is shutting down",
}


def _responses(status: str, says: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    good: dict[str, Any] = {"description": says}
    if schema is not None:
        good["content"] = {"application/json": {"schema": schema}}
    found = {status: good}
    for code, meaning in _ERRORS.items():
        shape = {"text/plain": {"schema": _TEXT}} if code == "401" else _json_error()
        found[code] = {"description": meaning, "content": shape}
    return found


def _json_error() -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def _body(fields: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = _object(fields, required)
    return {"content": {"application/json": {"schema": schema}}, "required": bool(required)}


def openapi() -> dict[str, Any]:
    """Return the description."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Tidelock lock service",
            "version": "1.0-alpha2",
            "description": "Locks for any program: Dapr's alpha1 API, and both options of the"
            " proposal that follows it.",
        },
        "paths": {**_alpha1(), **_alpha2(), **_around()},
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "dapr-api-token"}
            },
        },
        "security": [{"token": []}, {}],
    }


def _alpha1() -> dict[str, Any]:
    lock = {
        "operationId": "tryLockAlpha1",
        "deprecated": True,
        "parameters": [_STORE_PART],
        "requestBody": _body(
            {
                "resourceId": _ID,
                "lockOwner": _ID,
                "expiryInSeconds": {"type": "integer", "format": "int32", "minimum": 1},
            },
            ("resourceId", "lockOwner", "expiryInSeconds"),
        ),
        "responses": _responses("200", "whether it is locked", _object({"success": _FLAG})),
    }
    unlock = {
        "operationId": "unlockAlpha1",
        "deprecated": True,
        "parameters": [_STORE_PART],
        "requestBody": _body({"resourceId": _ID, "lockOwner": _ID}, ("resourceId", "lockOwner")),
        "responses": _responses(
            "200", "0 done, 1 no lock, 2 of others, 3 internal", _object({"status": _WHOLE})
        ),
    }
    return {
        "/v1.0-alpha1/lock/{store}": {"post": lock},
        "/v1.0-alpha1/unlock/{store}": {"post": unlock},
    }


def _alpha2() -> dict[str, Any]:
    wish = {
        "immediate": _FLAG,
        "ttl": _DURATION,
        "wait": _DURATION,
        "requestID": _TEXT,
        "owner": _TEXT,
        "autoRenew": _FLAG,
        "linger": _DURATION,
        "lockID": _TEXT,
        "stream": _FLAG,
        "store": _TEXT,
    }
    locked = _responses("200", "the lock is yours", _GRANT)
    locked["200"]["content"]["application/x-ndjson"] = {"schema": _TEXT}
    status = _object(
        {"locked": _FLAG, "waiters": _WHOLE, "cursor": _WHOLE}, ("locked", "waiters", "cursor")
    )
    named = [_RESOURCE, _STORE]
    one = {
        "post": {
            "operationId": "lock",
            "description": "With `Accept: application/x-ndjson` the lock lives as long as the"
            " response; without, until DELETE.",
            "parameters": named,
            "requestBody": _body(wish),
            "responses": locked,
        },
        "put": {
            "operationId": "renew",
            "parameters": named,
            "requestBody": _body({"lockID": _ID, "ttl": _DURATION, "store": _TEXT}, ("lockID",)),
            "responses": _responses("200", "one more TTL", _GRANT),
        },
        "delete": {
            "operationId": "unlock",
            "description": "With the lockID; or by force, which needs a permission of its own.",
            "parameters": named,
            "requestBody": _body(
                {"lockID": _TEXT, "requestID": _TEXT, "force": _FLAG, "store": _TEXT}
            ),
            "responses": _responses("204", "it is free", None),
        },
        "get": {
            "operationId": "status",
            "parameters": named,
            "responses": _responses("200", "who holds it and how many wait", status),
        },
    }
    after = {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}}
    only = {"name": "resource", "in": "query", "schema": _TEXT}
    events = {
        "operationId": "events",
        "parameters": [_STORE, after, only],
        "responses": _responses("200", "events, a JSON object to a line", None),
    }
    events["responses"]["200"]["content"] = {"application/x-ndjson": {"schema": _TEXT}}  # type: ignore[index]
    return {"/v1.0-alpha2/lock/{resource}": one, "/v1.0-alpha2/events": {"get": events}}


def _around() -> dict[str, Any]:
    well = {"204": {"description": "well"}, "500": {"description": "ending, or not able to go on"}}
    page = _responses("200", "Prometheus' text format", None)
    page["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return {
        "/v1.0/healthz": {"get": {"operationId": "healthz", "responses": well}},
        "/v1.0/healthz/outbound": {"get": {"operationId": "healthzOutbound", "responses": well}},
        "/metrics": {"get": {"operationId": "metrics", "responses": page}},
    }
