"""docs/events.md, from the lists of events, spans and alerts."""

from __future__ import annotations

import logging

from tidelock.lock.alerting import AlertKind
from tidelock.ops.telemetry.names import EVENTS, SPANS

_HEAD = """# Events, spans and alerts

Generated from the code by `make docs`.

The log has a name for each event. With `tidelock --log-json COMMAND`, or with
`tidelock.ops.telemetry.logs.JsonLines` as the formatter of a handler, it is one JSON object to a
line: `time`, `level`, `logger`, `message`, `event`, `table`, `writer`, `instant`, and the fields
below.
"""


def events_page() -> str:
    """Return the page."""
    lines = [_HEAD, "\n## Events\n\n| event | level | when | fields |\n|---|---|---|---|\n"]
    for event in sorted(EVENTS, key=lambda each: each.name):
        level = logging.getLevelName(event.level).lower()
        fields = ", ".join(f"`{name}`" for name in event.fields)
        lines.append(f"| `{event.name}` | {level} | {event.doc} | {fields} |\n")
    lines.append(
        "\n## Spans\n\nWith `tidelock[telemetry]`, `tidelock --trace COMMAND` or"
        " `tidelock.ops.telemetry.tracing.tracing()`. Attributes begin with `tidelock.`.\n"
        "\n| span | around |\n|---|---|\n"
    )
    lines += [f"| `{span.name}` | {span.doc} |\n" for span in SPANS]
    lines.append(
        "\n## Alerts\n\nTo the log, to the callbacks of `tidelock.on_alert`, and to"
        " `tidelock.alerts.webhook.url` if that is set. A webhook is sent the JSON object `kind`,"
        " `about`, `message`, `meaning`, `at_epoch_ms`, `writer`, `instant`.\n"
        "\n| alert | means |\n|---|---|\n"
    )
    lines += [f"| `{kind.value}` | {kind.meaning} |\n" for kind in AlertKind]
    return "".join(lines)
