"""One line of JSON per log record, on standard error. Secrets and prompts never come here."""

import logging
import sys
from typing import TextIO

import msgspec

from stoker.base import clock

_encode = msgspec.json.Encoder().encode


class JsonLines(logging.Formatter):
    """Format a record as one JSON object; fields given as ``extra={"fields": {…}}`` are merged in."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        line: dict[str, object] = {
            "at": clock.rfc3339(record.created),
            "level": record.levelname.lower(),
            "room": record.name,
            "event": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line.update(fields)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def set_up(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every log record of this process to ``stream`` (standard error) as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
