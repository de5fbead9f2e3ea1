"""What is wrong with a document, in words that name the field and the nearest right one."""

from collections.abc import Callable, Iterator, Sequence
from types import UnionType
from typing import Final, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from stoker.base.errors import Fault, nearest

Path: TypeAlias = tuple[str | int, ...]
Where: TypeAlias = Callable[[Path], int]

_WORDS: Final = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be a text (put it in quotes)",
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
}


def faults_of(
    error: ValidationError, model: type[BaseModel], *, prefix: Path = (), file: str = "", where: Where | None = None
) -> tuple[Fault, ...]:
    """Translate a pydantic error. ``where`` tells the line of a path (or of the longest part of it that exists)."""
    return tuple(
        Fault(
            message=_message(one["type"], one["msg"]),
            file=file,
            line=where((*prefix, *one["loc"])) if where else 0,
            field=show((*prefix, *one["loc"])),
            hint=_hint(one["type"], one["loc"], str(one["input"]), model=model),
        )
        for one in error.errors(include_url=False)
    )


def show(path: Sequence[str | int]) -> str:
    """Write a path as ``spec.endpoints[0].weight``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _message(kind: str, text: str) -> str:
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind in _WORDS:
        return _WORDS[kind]
    return text.removeprefix("Value error, ").replace("Input should be", "must be")


def _hint(kind: str, loc: Path, value: str, *, model: type[BaseModel]) -> str:
    if kind == "extra_forbidden" and loc:
        fields = list(_fields_at(model, loc[:-1]))
        return nearest(str(loc[-1]), fields) or (f"fields here: {', '.join(fields)}" if fields else "")
    if kind == "literal_error" and loc:
        allowed = list(_literals_at(model, loc))
        lowered = {word.lower(): word for word in allowed}
        close = nearest(value, allowed)
        return close or (f"did you mean '{lowered[value.lower()]}'?" if value.lower() in lowered else "")
    return ""


def _fields_at(model: type[BaseModel], loc: Path) -> Iterator[str]:
    for found in _models_at(model, loc):
        for name, field in found.model_fields.items():
            yield field.alias or name


def _literals_at(model: type[BaseModel], loc: Path) -> Iterator[str]:
    trail = [step for step in loc if isinstance(step, str)]
    names = [step for step in loc if not isinstance(step, int)]
    for found in _models_at(model, loc[: len(loc) - 1 - list(reversed(loc)).index(names[-1])]):
        for name, field in found.model_fields.items():
            if (field.alias or name) == trail[-1]:
                yield from (str(arg) for arg in _leaves(field.annotation) if isinstance(arg, str))


def _models_at(model: type[BaseModel], loc: Path) -> list[type[BaseModel]]:
    here = [model]
    for step in loc:
        if isinstance(step, int):
            continue
        fields = [f for m in here for name, f in m.model_fields.items() if (f.alias or name) == step]
        inner = [leaf for f in fields for leaf in _leaves(f.annotation)]
        models = [leaf for leaf in inner if isinstance(leaf, type) and issubclass(leaf, BaseModel)]
        # A step that is no field is a key of a mapping, whose values are the models found so far.
        here = models if fields else here
    return here


def _leaves(annotation: object) -> Iterator[object]:
    origin = get_origin(annotation)
    if origin is None:
        yield annotation
        return
    for arg in get_args(annotation):
        if origin in (Union, UnionType, tuple, dict) or get_origin(arg) is not None:
            yield from _leaves(arg)
        else:
            yield arg
