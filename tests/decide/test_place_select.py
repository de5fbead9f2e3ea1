"""Devices: selectors and the claim ledger."""

import pytest

from stoker.decide.place import Need, Placement, assume, place
from stoker.decide.select import Mismatch, matches
from stoker.facts.observed import Device


def gpu(number: int, mib: int = 81559, architecture: str = "Hopper") -> Device:
    return Device(
        id=f"GPU-{number}",
        kind="gpu",
        name="NVIDIA H100",
        memory_bytes=mib << 20,
        driver="gpu.nvidia.com",
        attributes={"architecture": architecture},
    )


CPU = Device(id="cpu", kind="cpu", name="EPYC", memory_bytes=24 << 30, exclusive=False)
BIG = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0'
NOMINAL = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        (BIG, True),
        (NOMINAL, False),  # an "80 GB" card has 79.6 GiB: the message must show that
        ('device.attributes["gpu.nvidia.com"].architecture == "Hopper"', True),
        ('device.attributes["gpu.nvidia.com"].architecture == "Ada"', False),
        ('device.driver == "gpu.nvidia.com"', True),
        ('device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("81559Mi")) == 0', True),
    ],
)
def test_selectors(expression: str, *, want: bool) -> None:
    assert matches(expression, gpu(0)) is want


@pytest.mark.parametrize(
    "expression", ["device.nothing.here == 1", "this is not CEL", 'device.capacity["x"].memory > 0']
)
def test_an_expression_that_cannot_be_evaluated_is_an_error_not_a_silent_no(expression: str) -> None:
    with pytest.raises(Mismatch, match=r"device|this"):
        matches(expression, gpu(0))


@pytest.mark.parametrize(
    ("needs", "held", "want"),
    [
        pytest.param((), {}, Placement(devices=("cpu",), shared=True), id="no need: the CPU"),
        pytest.param((Need(count=1),), {}, Placement(devices=("GPU-0",)), id="first free"),
        pytest.param((Need(count=1),), {"GPU-0": "a"}, Placement(devices=("GPU-1",)), id="not one that is held"),
        pytest.param((Need(count=2, expressions=(BIG,)),), {}, Placement(devices=("GPU-0", "GPU-1")), id="two"),
        pytest.param(
            (Need(count=1), Need(count=1)), {}, Placement(devices=("GPU-0", "GPU-1")), id="two requests share none"
        ),
    ],
)
def test_place(needs: tuple[Need, ...], held: dict[str, str], want: Placement) -> None:
    assert place(needs, [CPU, gpu(1), gpu(0)], held=held) == want


@pytest.mark.parametrize(
    ("needs", "devices", "held", "says"),
    [
        ((Need(count=1),), [CPU], {}, "has none"),
        ((Need(count=1, expressions=(NOMINAL,)),), [CPU, gpu(0)], {}, "81559 MiB"),
        ((Need(count=1, expressions=("device.nope == 1",)),), [gpu(0)], {}, "an expression failed"),
        ((Need(count=1),), [gpu(0)], {"GPU-0": "team/other"}, "held by team/other"),
    ],
)
def test_no_room_says_why(needs: tuple[Need, ...], devices: list[Device], held: dict[str, str], says: str) -> None:
    got = place(needs, devices, held=held)

    assert got.devices is None
    assert says in got.why


def test_a_placement_of_this_pass_is_seen_by_the_next() -> None:
    first = place((Need(count=1),), [gpu(0), gpu(1)], held={})
    held = assume({}, first, "ns/a")

    assert held == {"GPU-0": "ns/a"}
    assert place((Need(count=1),), [gpu(0), gpu(1)], held=held).devices == ("GPU-1",)
    assert assume(held, Placement(devices=("cpu",), shared=True), "ns/b") == held
