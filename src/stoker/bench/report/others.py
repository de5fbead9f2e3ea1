"""What have other tools measured? Their result files, reduced to what can be drawn beside ours.

They count differently: no success rate of theirs is taken over, for none of them counts a cleanly truncated answer.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One level of load. 0: the file does not say."""

    load: float
    tokens_per_second: float
    requests_per_second: float = 0.0
    ttft_p50_seconds: float = 0.0
    ttft_p90_seconds: float = 0.0
    tpot_p50_seconds: float = 0.0


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """One file of another tool."""

    name: str
    tool: str
    rows: tuple[Row, ...]


def read(path: Path) -> Other:
    """Read a result of guidellm, aiperf or ``vllm bench serve``. Raises Invalid."""
    try:
        value: Json = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(path))) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(Fault(message=f"it is no JSON: {error}", file=str(path))) from error
    if not isinstance(value, dict):
        raise Invalid(Fault(message="it is no JSON object", file=str(path)))
    for tool, takes in _TOOLS.items():
        rows = takes(value)
        if rows:
            return Other(name=f"{tool} {path.stem}", tool=tool, rows=tuple(rows))
    hint = "a JSON of guidellm (benchmarks), aiperf (profile_export_aiperf), or `vllm bench serve --save-result`"
    raise Invalid(Fault(message="no tool that is known writes this", file=str(path), hint=hint))


def _vllm(value: JsonObject) -> list[Row]:
    if "output_throughput" not in value or "median_ttft_ms" not in value:
        return []
    concurrency = _number(value, "max_concurrency")
    rate = _number(value, "request_rate")
    return [
        Row(
            load=concurrency or rate,
            tokens_per_second=_number(value, "output_throughput"),
            requests_per_second=_number(value, "request_throughput"),
            ttft_p50_seconds=_number(value, "median_ttft_ms") / 1000,
            ttft_p90_seconds=_number(value, "p90_ttft_ms") / 1000,
            tpot_p50_seconds=_number(value, "median_tpot_ms") / 1000,
        )
    ]


def _aiperf(value: JsonObject) -> list[Row]:
    """Its export has one object a metric, with ``unit`` and the percentiles; times are in milliseconds."""
    ttft = _object(value, "time_to_first_token")
    if not ttft:
        return []
    pace = _object(value, "inter_token_latency")
    config = _object(value, "input_config", "loadgen")
    return [
        Row(
            load=_number(config, "concurrency") or _number(config, "request_rate"),
            tokens_per_second=_number(_object(value, "output_token_throughput"), "avg"),
            requests_per_second=_number(_object(value, "request_throughput"), "avg"),
            ttft_p50_seconds=_number(ttft, "p50") / 1000,
            ttft_p90_seconds=_number(ttft, "p90") / 1000,
            tpot_p50_seconds=_number(pace, "p50") / 1000,
        )
    ]


def _guidellm(value: JsonObject) -> list[Row]:
    """It lists benchmarks, each with metrics whose ``successful`` part has the distribution."""
    listed = value.get("benchmarks")
    found = []
    for each in listed if isinstance(listed, list) else []:
        metrics = _object(each, "metrics")
        if not metrics:
            continue
        ttft = _successful(metrics, "time_to_first_token_ms")
        found.append(
            Row(
                load=_number(_successful(metrics, "request_concurrency"), "mean"),
                tokens_per_second=_number(_successful(metrics, "output_tokens_per_second"), "mean"),
                requests_per_second=_number(_successful(metrics, "requests_per_second"), "mean"),
                ttft_p50_seconds=_number(ttft, "median") / 1000,
                ttft_p90_seconds=_number(_object(ttft, "percentiles"), "p90") / 1000,
                tpot_p50_seconds=_number(_successful(metrics, "inter_token_latency_ms"), "median") / 1000,
            )
        )
    return found


_TOOLS: Final = {"vllm": _vllm, "guidellm": _guidellm, "aiperf": _aiperf}


def _successful(metrics: Mapping[str, Json], name: str) -> JsonObject:
    return _object(metrics, name, "successful")


def _object(value: Json | Mapping[str, Json], *path: str) -> JsonObject:
    found: Json | Mapping[str, Json] = value
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def _number(value: Mapping[str, Json], name: str) -> float:
    found = value.get(name)
    if isinstance(found, str):  # vllm writes an infinite rate as "inf"
        return 0.0
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0.0


def listing(others: Sequence[Other]) -> list[tuple[str, ...]]:
    """Write the rows for a table."""
    return [
        (
            other.name,
            f"{row.load:g}",
            f"{row.requests_per_second:.2f}",
            f"{row.tokens_per_second:.0f}",
            f"{row.ttft_p50_seconds * 1000:.0f}",
            f"{row.ttft_p90_seconds * 1000:.0f}",
            f"{row.tpot_p50_seconds * 1000:.1f}",
        )
        for other in others
        for row in other.rows
    ]
