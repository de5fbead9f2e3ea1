"""Bytes, durations and counts as people write them: ``16Gi``, ``30s``, ``1h30m``.

One rule for all manifests: a value with a unit is either such a quantity string or a plain
number in a field that carries its unit in the name.
"""

import re
from typing import Final

from stoker.base.errors import Invalid

_BINARY: Final = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL: Final = {"k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SIZES: Final = {**_BINARY, **_DECIMAL, **{f"{unit}B": size for unit, size in {**_BINARY, **_DECIMAL}.items() if unit}}
_SPANS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_bytes(text: str | int) -> int:
    """Read a size in bytes: ``16Gi``, ``500M``, ``1024``. Raises Invalid, naming the units that exist."""
    if isinstance(text, int) and not isinstance(text, bool):
        return _not_negative(text)
    match = _SIZE.match(str(text).strip())
    unit = match.group(2) if match else None
    if match is None or unit is None or unit.removesuffix("B" if unit == "B" else "") not in _SIZES:
        raise Invalid(
            f"'{text}' is not a size in bytes; write a number with Ki, Mi, Gi, Ti, k, M, G or T, as in '16Gi'"
        )
    return int(float(match.group(1)) * _SIZES[unit.removesuffix("B" if unit == "B" else "")])


def parse_seconds(text: str | float) -> float:
    """Read a duration in seconds: ``30s``, ``1h30m``, ``250ms``. Raises Invalid, naming the units that exist."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(_not_negative(text))
    spans = _SPAN.findall(str(text).strip())
    if not spans or "".join(number + unit for number, unit in spans) != str(text).strip():
        raise Invalid(f"'{text}' is not a duration; write a number with ms, s, m, h or d, as in '30s' or '1h30m'")
    return sum(float(number) * _SPANS[unit] for number, unit in spans)


def show_bytes(count: float) -> str:
    """Write a size for a person: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _not_negative(number: float) -> int:
    if number < 0:
        raise Invalid(f"{number} is negative")
    return int(number) if isinstance(number, int) else number  # type: ignore[return-value]
