"""The type of a JSON value, for the places where one passes through unread."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:  # a decoder of msgspec or pydantic cannot unroll a type that contains itself; it takes any JSON value for this
    Json = object

JsonObject: TypeAlias = dict[str, Json]
