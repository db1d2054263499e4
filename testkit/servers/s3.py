"""The S3 servers of the kit: credentials, and single signed requests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from http.client import HTTPException

from testkit.servers.process import HOST
from testkit.servers.server import Reply, RunningServer, send

ACCESS_KEY = "tidelock-test"
SECRET_KEY = "tidelock-test-secret"
REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class S3Server(RunningServer):
    """An S3 endpoint with path-style addressing and one administrator."""

    access_key: str = ACCESS_KEY
    secret_key: str = SECRET_KEY
    region: str = REGION

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket; it may exist already. Names have at least three letters."""
        reply = self.request("PUT", f"/{bucket}")
        if reply.status not in (200, 409):
            raise AssertionError(
                f"{self.name} did not create bucket {bucket}: {reply.status} {reply.body!r}"
            )

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        endpoint: str | None = None,
    ) -> Reply:
        """Send one signed request, to the server or to a proxy in front of it."""
        return signed_request(
            endpoint or self.endpoint,
            method,
            path,
            credentials=(self.access_key, self.secret_key),
            region=self.region,
            body=body,
            headers=headers,
        )


def signed_request(
    endpoint: str,
    method: str,
    path: str,
    *,
    credentials: tuple[str, str],
    region: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> Reply:
    """Send one request signed with Signature Version 4."""
    # The library is an optional dependency, so it is imported only when used.
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    url = endpoint + path
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {})
    request.headers["x-amz-content-sha256"] = hashlib.sha256(body).hexdigest()
    S3SigV4Auth(Credentials(*credentials), "s3", region).add_auth(request)
    return send(url, method=method, headers=dict(request.headers.items()), body=body)


def accepts_writes(port: int) -> bool:
    """Return whether an object can be written to a bucket reserved for this check.

    Health checks are too early: both servers report that they are ready before they accept a write.
    """
    for path in ("/ready-probe", "/ready-probe/object"):
        try:
            reply = signed_request(
                f"http://{HOST}:{port}",
                "PUT",
                path,
                credentials=(ACCESS_KEY, SECRET_KEY),
                region=REGION,
            )
        except (OSError, HTTPException):
            return False
        if reply.status not in (200, 409):
            return False
    return True
