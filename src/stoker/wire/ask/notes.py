"""What was left out of a request on its way into another dialect?"""

from typing import Any

from stoker.base.errors import Invalid


class Notes:
    """Collects the names of what was left out."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def drop(self, name: str) -> None:
        """Note that something was left out."""
        self._names[name] = None

    def all(self) -> tuple[str, ...]:
        """Give the names."""
        return tuple(self._names)


def refusal(where: str, why: str) -> Invalid:
    """Say what cannot be said, and why."""
    return Invalid(f"{where}: {why}")


def objects(value: object, where: str) -> list[dict[str, Any]]:
    """Take a list of objects; None is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise refusal(where, "a list is expected here")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            raise refusal(f"{where}[{number}]", "an object is expected here")
    return value


def text_of(value: object, where: str) -> str:
    """Take a string; None is an empty one."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise refusal(where, "a string is expected here")
    return value


def given(request: dict[str, Any], *names: str) -> dict[str, Any]:
    """Pick the members that are there; null is absent."""
    return {name: request[name] for name in names if request.get(name) is not None}
