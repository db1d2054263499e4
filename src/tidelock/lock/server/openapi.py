"""The OpenAPI document of the HTTP API. Pure."""

from __future__ import annotations

from typing import Any

from tidelock.core.limits import RESOURCE_ID_BYTES_MAX

_CONTENT_TYPES = {
    "json": "application/json",
    "lines": "application/x-ndjson",
    "text": "text/plain",
}
_TEXT = {"type": "string"}
_ID = {"type": "string", "minLength": 1, "maxLength": RESOURCE_ID_BYTES_MAX}
_DURATION = {"type": "string", "description": "Go duration: 30s, 1m30s, 500ms", "example": "30s"}
_FLAG = {"type": "boolean"}
_INTEGER = {"type": "integer", "format": "int64"}
_RESOURCE = {
    "name": "resource",
    "in": "path",
    "required": True,
    "schema": _ID,
    "description": "percent-encoded; never used as a path",
}
_STORE = {
    "name": "store",
    "in": "query",
    "schema": _TEXT,
    "description": "lock store; default: the only one, or the one named default",
}
_STORE_IN_PATH = {"name": "store", "in": "path", "required": True, "schema": _ID}


def _object(fields: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": "object", "properties": fields}
    if required:
        shape["required"] = list(required)
    return shape


_GRANT = _object(
    {"lockID": _TEXT, "token": _INTEGER, "ttl": _DURATION, "since": _INTEGER}, ("lockID", "token")
)
_ERROR = _object({"errorCode": _TEXT, "message": _TEXT, "hint": _TEXT}, ("errorCode", "message"))
_ERRORS = {
    "400": "invalid request",
    "401": "missing or wrong API token",
    "403": "missing permission",
    "404": "no such lock, or another lock ID",
    "405": "method not allowed",
    "409": "already locked, or the wait timed out",
    "429": "too many requests, waiters or streams",
    "500": "error of the service or its store",
    "503": "store unreachable, or shutting down",
}


def _content(**schemas: dict[str, Any]) -> dict[str, Any]:
    return {_CONTENT_TYPES[name]: {"schema": schema} for name, schema in schemas.items()}


def _responses(status: str, description: str, **schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the responses of a success and of every error."""
    success: dict[str, Any] = {"description": description}
    if schemas:
        success["content"] = _content(**schemas)
    error = _content(json={"$ref": "#/components/schemas/Error"})
    return {
        status: success,
        **{
            code: {
                "description": meaning,
                "content": _content(text=_TEXT) if code == "401" else error,
            }
            for code, meaning in _ERRORS.items()
        },
    }


def _body(fields: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"content": _content(json=_object(fields, required)), "required": bool(required)}


def openapi() -> dict[str, Any]:
    token = {"type": "apiKey", "in": "header", "name": "dapr-api-token"}
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Tidelock lock service",
            "version": "1.0-alpha2",
            "description": "Dapr's alpha1 lock API, and both options of the proposed alpha2 API.",
        },
        "paths": {**_alpha1(), **_alpha2(), **_operational()},
        "components": {"schemas": {"Error": _ERROR}, "securitySchemes": {"token": token}},
        "security": [{"token": []}, {}],
    }


def _alpha1() -> dict[str, Any]:
    expiry = {"type": "integer", "format": "int32", "minimum": 1}
    lock_fields = {"resourceId": _ID, "lockOwner": _ID, "expiryInSeconds": expiry}
    unlock_fields = {"resourceId": _ID, "lockOwner": _ID}
    lock = {
        "operationId": "tryLockAlpha1",
        "deprecated": True,
        "parameters": [_STORE_IN_PATH],
        "requestBody": _body(lock_fields, tuple(lock_fields)),
        "responses": _responses(
            "200", "whether the lock was acquired", json=_object({"success": _FLAG})
        ),
    }
    unlock = {
        "operationId": "unlockAlpha1",
        "deprecated": True,
        "parameters": [_STORE_IN_PATH],
        "requestBody": _body(unlock_fields, tuple(unlock_fields)),
        "responses": _responses(
            "200",
            "0 released, 1 not locked, 2 locked by another owner, 3 internal error",
            json=_object({"status": _INTEGER}),
        ),
    }
    return {
        "/v1.0-alpha1/lock/{store}": {"post": lock},
        "/v1.0-alpha1/unlock/{store}": {"post": unlock},
    }


def _alpha2() -> dict[str, Any]:
    options = {
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
    status_fields = {"locked": _FLAG, "waiters": _INTEGER, "cursor": _INTEGER}
    status = _object(status_fields, tuple(status_fields))
    unlock_fields = {"lockID": _TEXT, "requestID": _TEXT, "force": _FLAG, "store": _TEXT}
    parameters = [_RESOURCE, _STORE]
    lock = {
        "post": {
            "operationId": "lock",
            "description": "With `Accept: application/x-ndjson` the lock is held while the response"
            " is open; otherwise until DELETE.",
            "parameters": parameters,
            "requestBody": _body(options),
            "responses": _responses("200", "the lock was acquired", json=_GRANT, lines=_TEXT),
        },
        "put": {
            "operationId": "renew",
            "parameters": parameters,
            "requestBody": _body({"lockID": _ID, "ttl": _DURATION, "store": _TEXT}, ("lockID",)),
            "responses": _responses("200", "extended by one TTL", json=_GRANT),
        },
        "delete": {
            "operationId": "unlock",
            "description": "By lockID, or by force, which needs the permission force.",
            "parameters": parameters,
            "requestBody": _body(unlock_fields),
            "responses": _responses("204", "released"),
        },
        "get": {
            "operationId": "status",
            "parameters": parameters,
            "responses": _responses("200", "holder and number of waiters", json=status),
        },
    }
    after = {"name": "after", "in": "query", "schema": {"type": "integer", "minimum": 0}}
    only = {"name": "resource", "in": "query", "schema": _TEXT}
    events = {
        "operationId": "events",
        "parameters": [_STORE, after, only],
        "responses": _responses("200", "events, one JSON object per line", lines=_TEXT),
    }
    return {"/v1.0-alpha2/lock/{resource}": lock, "/v1.0-alpha2/events": {"get": events}}


def _operational() -> dict[str, Any]:
    healthy = {
        "204": {"description": "healthy"},
        "500": {"description": "shutting down, or failed"},
    }
    page = _responses("200", "Prometheus text format", text=_TEXT)
    return {
        "/v1.0/healthz": {"get": {"operationId": "healthz", "responses": healthy}},
        "/v1.0/healthz/outbound": {"get": {"operationId": "healthzOutbound", "responses": healthy}},
        "/metrics": {"get": {"operationId": "metrics", "responses": page}},
    }
