"""Signatures, compared with botocore's for the same requests."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from botocore import auth, awsrequest, credentials
from hypothesis import given
from hypothesis import strategies as st

from tidelock.storage.aws import (
    UNSIGNED_PAYLOAD,
    AwsCredentials,
    Signer,
    canonical_query,
    payload_hash,
)

NOW_EPOCH_MS = 1_700_000_000_123
MOMENT = "20231114T221320Z"
HOST = "bucket.s3.eu-west-1.amazonaws.com"
REGION = "eu-west-1"
KEYS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")

_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)


@dataclass(frozen=True)
class Sample:
    """A request to sign."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    keys: AwsCredentials


_SAMPLES = st.builds(
    Sample,
    method=st.sampled_from(["GET", "PUT", "DELETE", "HEAD"]),
    path=_TEXT.map(lambda key: "/" + quote(key, safe="/")),
    query=st.dictionaries(_TEXT.filter(bool), _TEXT, max_size=3),
    headers=st.fixed_dictionaries(
        {},
        optional={
            "if-match": st.from_regex(r'"[0-9a-f]{4,32}"', fullmatch=True),
            "if-none-match": st.just("*"),
            "range": st.from_regex(r"bytes=[0-9]{1,5}-[0-9]{1,5}", fullmatch=True),
            "x-amz-meta-note": st.just("two  spaces "),
        },
    ),
    body=st.binary(max_size=64),
    keys=st.sampled_from(
        [KEYS, AwsCredentials(KEYS.access_key, KEYS.secret_key, "session/token+=")]
    ),
)


def ours(sample: Sample, signer: Signer, *, region: str = REGION) -> dict[str, str]:
    return signer.sign(
        sample.method,
        sample.path,
        canonical_query(sample.query),
        {**sample.headers, "host": HOST},
        keys=sample.keys,
        region=region,
        payload=payload_hash(sample.body, encrypted=False),
        now_epoch_ms=NOW_EPOCH_MS,
    )


def theirs(sample: Sample) -> str:
    request = awsrequest.AWSRequest(
        method=sample.method,
        url=f"https://{HOST}{sample.path}",
        params=sample.query,
        headers=sample.headers,
        data=sample.body,
    )
    request.context["timestamp"] = MOMENT
    keys = sample.keys
    signer = auth.S3SigV4Auth(
        credentials.Credentials(keys.access_key, keys.secret_key, keys.session_token), "s3", REGION
    )
    signer._modify_request_before_signing(request)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return str(signer.signature(text, request))


@given(sample=_SAMPLES)
def test_signature_matches_botocore(sample: Sample) -> None:
    signed = ours(sample, Signer())
    assert signed["authorization"].endswith(f"Signature={theirs(sample)}")


def test_reused_signer_signs_like_a_new_one() -> None:
    sample = Sample("GET", "/key", {}, {}, b"", KEYS)
    other = Sample("GET", "/key", {}, {}, b"", AwsCredentials("OTHER", "another secret"))
    used = Signer()
    for each in (sample, other, sample):
        assert ours(each, used) == ours(each, Signer())
    assert ours(sample, used, region="us-west-2") != ours(sample, used)


def test_signature_covers_the_condition() -> None:
    plain = Sample("PUT", "/key", {}, {}, b"x", KEYS)
    guarded = Sample("PUT", "/key", {}, {"if-none-match": "*"}, b"x", KEYS)
    assert "if-none-match" in ours(guarded, Signer())["authorization"]
    assert ours(plain, Signer())["authorization"] != ours(guarded, Signer())["authorization"]


def test_body_is_unsigned_only_over_tls() -> None:
    assert payload_hash(b"body", encrypted=True) == UNSIGNED_PAYLOAD
    assert payload_hash(b"body", encrypted=False) != UNSIGNED_PAYLOAD
    assert payload_hash(b"", encrypted=True) == payload_hash(None, encrypted=False)


def test_repr_shows_no_secrets() -> None:
    shown = repr(AwsCredentials("AKIDEXAMPLE", "the secret", "the token"))
    assert "the secret" not in shown
    assert "the token" not in shown
