"""What each gateway worker says about itself, every second. Stale is unknown, never zero."""

from typing import Final

import msgspec

SCHEMA_VERSION: Final = 1


class EndpointLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One endpoint as one worker sees it. Times are epoch seconds; 0: never."""

    name: str
    incarnation: str
    running: int = 0
    waiting: int = 0
    last_token_at: float = 0.0
    ejected_until: float = 0.0


class ServiceLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One service as one worker sees it."""

    name: str
    waiting: int = 0
    oldest_waiting_since: float = 0.0


class InFlight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that runs now: enough to write a `lost` record when its worker is killed."""

    id: str
    at: float
    caller: str = ""
    key_id: str = ""
    service: str = ""
    model: str = ""
    endpoint: str = ""
    incarnation: str = ""
    dialect: str = ""
    path: str = ""
    stream: bool = False
    request_id: str = ""


class Live(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker at one moment."""

    worker: str  # boot id of the worker process
    pid: int
    at: float
    schema_version: int = SCHEMA_VERSION
    routes_generation: int = 0
    callers_generation: int = 0
    routes_error: str = ""  # why the newest file was refused; the last good one is in force
    limits_problem: str = ""  # why limits are not shared with other machines, or the day's counts are in doubt
    tls_cert_file: str = ""  # the certificate under which connections are taken; empty: without TLS
    draining: bool = False
    endpoints: tuple[EndpointLoad, ...] = ()
    services: tuple[ServiceLoad, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    records_written: int = 0
    records_unsynced: int = 0
    accounting: str = "ok"  # ok | reserve | refusing | unmetered
