"""Azure's block blobs: blocks staged under a blob's name, then one request that lists them.

The condition stands on that last request. Blocks that are never listed cannot be removed; they are
unseen, and Azure drops them after a week or when the blob is made by somebody else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Protocol
from xml.etree import ElementTree as ET

from tidelock.base.errors import TidelockError
from tidelock.base.limits import UPLOAD_PART_BYTES
from tidelock.store.contract import Create, PutReply, Refused
from tidelock.store.exchange import Exchange, condition_headers
from tidelock.store.http import Reply, Request
from tidelock.store.xmltext import error_code


class Sign(Protocol):
    """Makes a signed request for the blob."""

    def __call__(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = {},
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        """Return the request."""
        ...


class BlockParts:
    """The blocks of one blob. Their ids carry `nonce`: uploads of one name do not mix."""

    part_bytes = UPLOAD_PART_BYTES

    def __init__(
        self,
        exchange: Exchange,
        sign: Sign,
        path: str,
        *,
        nonce: str,
        subject: str,
        whole: Callable[[bytes], PutReply],
        judge: Callable[[Reply], PutReply],
        refusal: Callable[[Reply], TidelockError],
    ) -> None:
        """Send nothing yet."""
        self._exchange = exchange
        self._sign = sign
        self._path = path
        self._nonce = nonce
        self._subject = subject
        self.whole = whole
        self._judge = judge
        self._refusal = refusal
        self._blocks: list[str] = []

    def send(self, body: bytes) -> None:
        """Stage the next block."""
        # All ids of a blob have the same length.
        block = base64.b64encode(f"{self._nonce}-{len(self._blocks):06}".encode()).decode()
        headers = {"content-length": str(len(body)), "content-type": "application/octet-stream"}
        query = {"comp": "block", "blockid": block}
        reply = self._exchange.settle(
            "put",
            lambda: self._sign("PUT", self._path, query=query, headers=headers, body=body),
            subject=self._subject,
        )
        if reply.status != 201:
            raise self._refusal(reply)
        self._blocks.append(block)

    def complete(self, last: bytes) -> PutReply:
        """Stage the last block, and have the blob made of all of them."""
        self.send(last)
        body = _block_list(self._blocks)
        headers = {
            "content-length": str(len(body)),
            "content-type": "application/xml",
            **condition_headers(Create()),
        }

        def judge(reply: Reply) -> PutReply:
            if reply.status == 400 and error_code(reply.body) == "InvalidBlockList":
                # Somebody made the blob, which dropped the blocks that it does not have.
                return Refused()
            return self._judge(reply)

        return self._exchange.put(
            lambda: self._sign(
                "PUT", self._path, query={"comp": "blocklist"}, headers=headers, body=body
            ),
            judge,
            Create(),
            subject=self._subject,
        )

    def abort(self) -> None:
        """Leave the blocks to Azure, which has no request that removes them."""
        self._blocks.clear()


def _block_list(blocks: list[str]) -> bytes:
    root = ET.Element("BlockList")
    for block in blocks:
        ET.SubElement(root, "Latest").text = block
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document
