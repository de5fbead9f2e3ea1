"""What does a worker say on its own port? Metrics, its live state and whether it is there. Loopback only."""

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from stoker.base import clock
from stoker.facts.live import Live
from stoker.gateway.meter import BUCKETS, Histogram, Meter
from stoker.http1.exchange import Exchange
from stoker.wire import errors

_JSON: Final = b"content-type: application/json\r\n"
_TEXT: Final = b"content-type: text/plain; version=0.0.4; charset=utf-8\r\n"


class Admin:
    """The application of the admin port."""

    def __init__(self, metrics: Callable[[], bytes], live: Callable[[], Live]) -> None:
        self._metrics = metrics
        self._live = live

    def head(self, exchange: Exchange) -> bool:
        """Take no body."""
        return exchange.method in (b"GET", b"HEAD")

    def request(self, exchange: Exchange) -> None:
        """Answer."""
        path = exchange.target.partition(b"?")[0]
        if exchange.method not in (b"GET", b"HEAD"):
            exchange.respond(405, _JSON, errors.body(405, "Use GET here.", code="method_not_allowed"))
        elif path == b"/metrics":
            exchange.respond(200, _TEXT, self._metrics())
        elif path == b"/live":
            exchange.respond(200, _JSON, msgspec.json.encode(self._live()))
        elif path == b"/healthz":
            exchange.respond(200, _JSON, b'{"status":"ok"}')
        else:
            exchange.respond(404, _JSON, errors.body(404, "There is no such page here.", code="unknown_url"))

    def broken(self, status: int, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
        """Write the error for a head that could not be read."""
        del headers
        return _JSON, errors.body(status, "The request could not be read.")


_TEXTS = {
    "stoker_requests_total": ("counter", "Requests by service, dialect, outcome and status."),
    "stoker_tokens_total": ("counter", "Tokens by service and kind."),
    "stoker_request_duration_seconds": ("histogram", "From the request's head to its record."),
    "stoker_time_to_first_token_seconds": ("histogram", "From the request's head to the first token (TTFT)."),
    "stoker_time_per_output_token_seconds": ("histogram", "Mean wait between tokens of one answer (TPOT)."),
    "stoker_queue_duration_seconds": ("histogram", "From the request's head to its dispatch to an endpoint."),
    "stoker_requests_in_flight": ("gauge", "Requests under way."),
    "stoker_endpoint_running_requests": ("gauge", "Requests that this worker has running at an endpoint."),
    "stoker_endpoint_ejected": ("gauge", "1 while an endpoint is left alone after faults."),
    "stoker_service_waiting_requests": ("gauge", "Requests that wait for a slot."),
    "stoker_routes_generation": ("gauge", "Generation of the routes in force."),
    "stoker_callers_generation": ("gauge", "Generation of the callers in force."),
    "stoker_routes_refused": (
        "gauge",
        "1 while the newest routes or callers were refused and older ones are in force.",
    ),
    "stoker_limits_ok": ("gauge", "1 while limits are kept over all machines that share them, and over the whole day."),
    "stoker_accounting_ok": ("gauge", "1 while records are written as they should be."),
    "stoker_records_written_total": ("counter", "Ledger records handed to the spool."),
    "stoker_records_refused_total": ("counter", "Ledger records for which there was no room."),
    "stoker_access_log_lines_lost_total": ("counter", "Lines for which the access log found no room."),
    "stoker_records_unsynced": ("gauge", "Records that a power cut would lose now."),
}


def page(meter: Meter, live: Live, worker: int) -> bytes:
    """Write the page."""
    name, series = "", []
    for metric, labels, value in (*_counters(meter), *_histograms(meter), *_gauges(meter, live)):
        family = metric.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        family = family if family in _TEXTS else metric
        if family != name:
            kind, text = _TEXTS[family]
            series.append(f"# HELP {family} {text}\n# TYPE {family} {kind}\n")
            name = family
        named = {"worker": str(worker), **labels}
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in named.items())
        series.append(f"{metric}{{{inside}}} {value:.10g}\n")
    return "".join(series).encode()


_HISTOGRAMS = {
    "stoker_request_duration_seconds": attrgetter("duration"),
    "stoker_time_to_first_token_seconds": attrgetter("first_token"),
    "stoker_time_per_output_token_seconds": attrgetter("gap"),
    "stoker_queue_duration_seconds": attrgetter("queue"),
}

_Series = tuple[str, Mapping[str, str], float]


def _counters(meter: Meter) -> Iterator[_Series]:
    for (service, dialect, outcome, status), count in sorted(meter.requests.items()):
        labels = {"service": service, "dialect": dialect, "outcome": outcome, "status": str(status)}
        yield "stoker_requests_total", labels, count
    for service, sums in sorted(meter.tokens.items()):
        for kind, count in zip(("prompt", "cached", "output"), sums, strict=True):
            yield "stoker_tokens_total", {"service": service, "kind": kind}, count


def _histograms(meter: Meter) -> Iterator[_Series]:
    for name, member in _HISTOGRAMS.items():
        for service, series in sorted(meter.series.items()):
            yield from _histogram(name, service, member(series))


def _histogram(name: str, service: str, histogram: Histogram) -> Iterator[_Series]:
    seen = 0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), histogram.counts, strict=True):
        seen += count
        yield f"{name}_bucket", {"service": service, "le": bound}, seen
    yield f"{name}_sum", {"service": service}, histogram.total
    yield f"{name}_count", {"service": service}, seen


def _gauges(meter: Meter, live: Live) -> Iterator[_Series]:
    yield "stoker_requests_in_flight", {}, len(live.in_flight)
    for endpoint in live.endpoints:
        labels = {"endpoint": endpoint.name, "incarnation": endpoint.incarnation}
        yield "stoker_endpoint_running_requests", labels, endpoint.running
    for endpoint in live.endpoints:
        labels = {"endpoint": endpoint.name, "incarnation": endpoint.incarnation}
        yield "stoker_endpoint_ejected", labels, endpoint.ejected_until > clock.now()
    for service in live.services:
        yield "stoker_service_waiting_requests", {"service": service.name}, service.waiting
    yield "stoker_routes_generation", {}, live.routes_generation
    yield "stoker_callers_generation", {}, live.callers_generation
    yield "stoker_routes_refused", {}, bool(live.routes_error)
    yield "stoker_limits_ok", {}, not live.limits_problem
    yield "stoker_accounting_ok", {}, live.accounting == "ok"
    yield "stoker_records_written_total", {}, live.records_written
    yield "stoker_records_refused_total", {}, meter.unwritten
    yield "stoker_access_log_lines_lost_total", {}, meter.journal.lost if meter.journal is not None else 0
    yield "stoker_records_unsynced", {}, live.records_unsynced


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
