"""Where a bucket answers: AWS by region, or a server of one's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tidelock.base.errors import ConfigInvalid, ResourceInvalid, Unsupported

AWS_REGION_DEFAULT = "us-east-1"


@dataclass(frozen=True, slots=True)
class Address:
    """The host of a bucket, the path that stands before each key, the region signed for."""

    origin: str
    host: str
    base: str
    region: str


def aws_address(bucket: str, region: str) -> Address:
    """Return the address of `bucket` on AWS."""
    if bucket.endswith("--x-s3"):
        raise Unsupported(
            f"s3://{bucket} is a directory bucket, which asks for a session per request",
            hint="use a general purpose bucket",
        )
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    service = f"s3.{region}.{domain}"
    # The certificate of *.s3 does not cover a bucket with a dot in its name.
    if "." in bucket:
        return Address(f"https://{service}", service, f"/{quote(bucket, safe='')}", region)
    host = f"{_host_label(bucket)}.{service}"
    return Address(f"https://{host}", host, "", region)


def server_address(endpoint: str, bucket: str, region: str, *, path_style: bool) -> Address:
    """Return the address of `bucket` on the server at `endpoint`."""
    url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    if url.scheme not in ("http", "https") or not url.hostname or url.query or "@" in url.netloc:
        raise ConfigInvalid(
            "the S3 end point is not an http or https URL of a host",
            hint="write it as https://host:port",
        )
    base = url.path.rstrip("/")
    if path_style:
        base, host = f"{base}/{quote(bucket, safe='')}", url.netloc
    else:
        host = f"{_host_label(bucket)}.{url.netloc}"
    return Address(f"{url.scheme}://{host}", _without_default_port(url.scheme, host), base, region)


def _without_default_port(scheme: str, host: str) -> str:
    return host.removesuffix(":443" if scheme == "https" else ":80")


def _host_label(bucket: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", bucket):
        raise ResourceInvalid(
            f"s3://{bucket}: a bucket is named by letters, digits, dots and hyphens"
        )
    return bucket
