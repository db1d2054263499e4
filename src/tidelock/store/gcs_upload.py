"""Google's resumable upload: pieces sent to a session, the last of which makes the object.

The session carries the condition from its beginning; Google tests it when the object is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from tidelock.base.errors import DataCorrupt, StoreUnreachable
from tidelock.base.limits import RESEND_TRIES, UPLOAD_PART_BYTES
from tidelock.base.outcome import Landed
from tidelock.store.contract import Create, PutReply, Refused, Unclear
from tidelock.store.exchange import Exchange
from tidelock.store.http import Reply, Request

_GOES_ON = 308


class MakeRequest(Protocol):
    """Makes an authorised request."""

    def __call__(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] = {},
        body: bytes | None = None,
    ) -> Request:
        """Return the request."""
        ...


class ResumableParts:
    """The pieces of one object, sent to the session that a request to `target` begins."""

    part_bytes = UPLOAD_PART_BYTES  # a multiple of 256 KiB, as Google demands

    def __init__(
        self,
        exchange: Exchange,
        request: MakeRequest,
        target: str,
        *,
        subject: str,
        whole: Callable[[bytes], PutReply],
        judge: Callable[[Reply], PutReply],
    ) -> None:
        """Send nothing yet. `judge` raises for a reply that none can go on after."""
        self._exchange = exchange
        self._request = request
        self._target = target
        self._subject = subject
        self.whole = whole
        self._judge = judge
        self._session = ""
        self._sent_bytes = 0
        self._verdict: PutReply | None = None

    def send(self, body: bytes) -> None:
        """Send the next piece, until the session says that it has all of it."""
        if not self._session and self._verdict is None:
            self._begin()
        start, end = self._sent_bytes, self._sent_bytes + len(body)
        tries = 0
        while self._sent_bytes < end and self._verdict is None:
            tries += 1
            part = body[self._sent_bytes - start :]
            if self._send_once(f"bytes {self._sent_bytes}-{end - 1}/*", part):
                continue
            # What the session kept of a piece without an answer must be asked, not guessed.
            self._ask()
            if tries >= RESEND_TRIES:
                raise StoreUnreachable(
                    f"{self._subject}: {tries} times a part of the upload got no answer",
                    hint="check the end point and the network, then try again",
                )

    def complete(self, last: bytes) -> PutReply:
        """Send the last piece, which makes the object."""
        if self._verdict is not None:
            return self._verdict
        total = self._sent_bytes + len(last)
        headers = {"content-range": f"bytes {self._sent_bytes}-{total - 1}/{total}"}

        def judge(reply: Reply) -> PutReply:
            if reply.status == _GOES_ON:
                return Unclear("the store waits for more of an upload that is complete")
            return self._judge(reply)

        return self._exchange.put(
            lambda: self._request("PUT", self._session, headers=headers, body=last),
            judge,
            Create(),
            subject=self._subject,
        )

    def abort(self) -> None:
        """End the session, and with it what was sent."""
        if self._session:
            self._exchange.settle(
                "delete", lambda: self._request("DELETE", self._session), subject=self._subject
            )

    def _begin(self) -> None:
        headers = {"x-upload-content-type": "application/octet-stream"}
        reply = self._exchange.settle(
            "put",
            lambda: self._request("POST", self._target, headers=headers, body=b""),
            subject=self._subject,
        )
        if reply.status not in (200, 201):
            self._ended_early(reply)
            return
        place = urlsplit(reply.headers.get("location", ""))
        if not place.path:
            raise DataCorrupt(f"{self._subject}: the store began an upload without a session")
        # The host may be one that only the server itself can reach; path and query are enough.
        self._session = f"{place.path}?{place.query}"

    def _send_once(self, content_range: str, body: bytes) -> bool:
        """Send a piece; False if no answer says what became of it."""
        headers = {"content-range": content_range}

        def judge(reply: Reply) -> PutReply:
            if reply.status == _GOES_ON:
                self._keep(reply, self._sent_bytes + len(body))
                return Landed("")
            return self._ended_early(reply)

        answer = self._exchange.put(
            lambda: self._request("PUT", self._session, headers=headers, body=body),
            judge,
            Create(),
            subject=self._subject,
        )
        return isinstance(answer, Landed | Refused)

    def _ask(self) -> None:
        """Ask the session how much it has."""
        headers = {"content-range": "bytes */*"}
        reply = self._exchange.settle(
            "put",
            lambda: self._request("PUT", self._session, headers=headers, body=b""),
            subject=self._subject,
        )
        if reply.status == _GOES_ON:
            self._keep(reply, self._sent_bytes + self.part_bytes)
        else:
            self._ended_early(reply)

    def _ended_early(self, reply: Reply) -> PutReply:
        """Take a reply that ends the session: the condition may be tested before the last piece."""
        self._verdict = self._judge(reply)
        if isinstance(self._verdict, Landed):
            raise DataCorrupt(
                f"{self._subject}: the store made an object of the first {self._sent_bytes} bytes"
                " of an upload that was not finished",
                hint="delete the object; this server does not keep to Google's resumable uploads",
            )
        return self._verdict

    def _keep(self, reply: Reply, most: int) -> None:
        found = re.fullmatch(r"bytes=0-(\d+)", reply.headers.get("range", ""))
        kept = int(found[1]) + 1 if found else 0
        if not self._sent_bytes <= kept <= most:
            raise DataCorrupt(
                f"{self._subject}: the store has {kept} bytes of an upload that had"
                f" {self._sent_bytes} before and cannot have more than {most} now"
            )
        self._sent_bytes = kept
