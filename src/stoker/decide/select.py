"""Does a device satisfy a CEL expression of a manifest?

The names are those of Kubernetes' dynamic resource allocation: ``device.driver``, ``device.attributes[driver].name``,
``device.capacity[driver].memory.compareTo(quantity("20Gi"))``. An expression that cannot be evaluated is an error that
is reported, never a silent "no match".
"""

import re
from functools import lru_cache
from typing import Final

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from stoker.base.errors import Invalid
from stoker.base.units import parse_bytes
from stoker.facts.observed import Device

_QUANTITY: Final = re.compile(r"""quantity\(\s*(["'])([^"']*)\1\s*\)""")
_COMPARE: Final = re.compile(r"\.compareTo\(\s*(-?\d+)\s*\)\s*(==|!=|>=|<=|>|<)\s*0\b")


class Mismatch(ValueError):
    """The expression cannot be evaluated on this device."""


def matches(expression: str, device: Device) -> bool:
    """Evaluate one expression; raises Mismatch when it cannot be evaluated."""
    try:
        answer = _program(expression).evaluate({"device": _facts(device)})
    except CELEvalError as error:
        raise Mismatch(f"'{expression.strip()}': {error.args[0] if error.args else error}") from error
    return bool(answer)


@lru_cache(maxsize=512)
def _program(expression: str) -> celpy.Runner:
    """Compile once: each (selector, device) pair would else cost a parse of some 10 ms."""
    try:
        plain = _QUANTITY.sub(lambda m: str(parse_bytes(m.group(2))), expression)
        # a.compareTo(b) >= 0 is a >= b, once both are plain numbers; cel-python has no methods on integers.
        plain = _COMPARE.sub(lambda m: f" {m.group(2)} {m.group(1)}", plain)
        environment = celpy.Environment()
        return environment.program(environment.compile(plain))
    except (CELParseError, Invalid) as error:
        raise Mismatch(f"'{expression.strip()}' is no CEL expression: {error}") from error


def _facts(device: Device) -> celtypes.MapType:
    driver = device.driver or "gpu.nvidia.com"
    attributes = json_to_cel({driver: dict(device.attributes), **device.attributes})
    capacity = json_to_cel({driver: {"memory": device.memory_bytes}, "memory": device.memory_bytes})
    return celtypes.MapType(
        {
            celtypes.StringType("driver"): celtypes.StringType(driver),
            celtypes.StringType("attributes"): attributes,
            celtypes.StringType("capacity"): capacity,
        }
    )
