"""Where do requests go, and in which dialect?"""

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from stoker.base.errors import Driver, Fault, Invalid, nearest

PATHS: Final = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One endpoint and one model of it."""

    url: str  # without /v1 and what follows
    model: str
    dialect: str = "chat"
    key: str = field(default="", repr=False)
    cert_file: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def path(self) -> str:
        """The path of this dialect, below whatever the URL has."""
        return urlsplit(self.url).path.rstrip("/") + PATHS[self.dialect]

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        found = {"content-type": "application/json", "accept": "text/event-stream"}
        if self.key:
            found["authorization"] = f"Bearer {self.key}"
        if self.dialect == "messages":
            found["anthropic-version"] = "2023-06-01"
        return found

    def head(self) -> bytes:
        """Everything before the length of the body; that and two line ends follow."""
        lines = [f"POST {self.path} HTTP/1.1", f"host: {urlsplit(self.url).netloc}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\ncontent-length: ").encode("latin-1")

    def tls(self) -> ssl.SSLContext | None:
        """Make the context that believes ``cert_file``. Raises Driver when it cannot be read."""
        if not self.cert_file:
            return None
        try:
            return ssl.create_default_context(cafile=self.cert_file)
        except OSError as error:
            raise Driver(f"cannot read certificates from {self.cert_file}: {error}") from error


def base_url(url: str) -> str:
    """Cut a URL down to what stands before ``/v1``. Raises Invalid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid(Fault(message=f"'{url}' is no URL", field="URL", hint="such as http://127.0.0.1:8080"))
    whole = url.rstrip("/")
    for end in (*PATHS.values(), "/v1"):
        whole = whole.removesuffix(end)
    return whole.rstrip("/")


def checked_dialect(dialect: str) -> str:
    """Give a dialect that exists. Raises Invalid."""
    if dialect not in PATHS:
        hint = nearest(dialect, list(PATHS)) or f"one of {', '.join(PATHS)}"
        raise Invalid(Fault(message=f"there is no dialect '{dialect}'", field="--dialect", hint=hint))
    return dialect
