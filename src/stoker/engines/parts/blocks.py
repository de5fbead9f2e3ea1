"""The typed block as flags: every field is mapped or refused by name, and extra args may not contradict it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from pydantic.alias_generators import to_camel

from stoker.base.errors import Fault, Invalid
from stoker.engines.base import Ask
from stoker.spec.deployment import EngineBlock, Speculative

Value: TypeAlias = str | int | float | bool | Speculative
Flags: TypeAlias = tuple[str, ...]
Map: TypeAlias = Callable[[Value], Flags]

# Not settings of the engine: who it is, and what goes to it unread.
UNMAPPED: Final = frozenset({"name", "version", "extra_args", "env"})
# What the platform itself sets in an engine's environment.
_OWN_ENV: Final = frozenset({"CUDA_VISIBLE_DEVICES", "STOKER_PORT", "STOKER_SECRET_FILE", "STOKER_ENGINE_SECRET"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What an engine does with each field of the block. ``own``: flags that the platform sets, with the reason."""

    engine: str
    flags: Mapping[str, Map] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # field -> what to use instead
    spelled: Mapping[str, str] = field(default_factory=dict)  # flag -> the field that it stands for
    own: Mapping[str, str] = field(default_factory=dict)
    own_env: frozenset[str] = frozenset()


def arguments(table: Table, ask: Ask) -> Flags:
    """Write the block's fields and the extra args as flags; raises Invalid with every field that does not go."""
    block = ask.block
    given = {name: getattr(block, name) for name in EngineBlock.model_fields if name not in UNMAPPED}
    asked = {name: value for name, value in given.items() if value is not None}
    faults = [refuse(table.engine, name, table.refused[name]) for name in asked if name in table.refused]
    extra = ask.extra_args or block.extra_args
    faults += _contradictions(table, extra, set(asked))
    faults += _taken(table, {**block.env, **ask.env})
    if faults:
        raise Invalid(*faults)
    typed = tuple(word for name, value in asked.items() for word in table.flags[name](value))
    return (*typed, *extra)


def refuse(engine: str, name: str, instead: str) -> Fault:
    """Say that an engine does not have a field of the block."""
    return Fault(message=f"{engine} has no such setting", field=f"spec.engine.{to_camel(name)}", hint=instead)


def _contradictions(table: Table, words: Sequence[str], asked: set[str]) -> list[Fault]:
    faults = []
    for word in words:
        flag = word.partition("=")[0]
        name = table.spelled.get(flag, "")
        if flag in table.own:
            message, hint = f"'{flag}' is set by the platform", table.own[flag]
        elif name in asked:
            message, hint = f"'{flag}' contradicts {to_camel(name)}", f"keep spec.engine.{to_camel(name)} alone"
        else:
            continue
        faults.append(Fault(message=message, field="spec.engine.extraArgs", hint=hint))
    return faults


def _taken(table: Table, names: Iterable[str]) -> list[Fault]:
    owned = _OWN_ENV | table.own_env
    return [
        Fault(message=f"'{name}' is set by the platform", field="spec.engine.env") for name in names if name in owned
    ]


def one(flag: str) -> Map:
    """The flag and its value."""
    return lambda value: (flag, shown(value))


def when(flag: str, off: str = "") -> Map:
    """A flag that stands alone, for true; ``off`` for false (nothing: that is the default)."""
    return lambda value: (flag,) if value else (off,) if off else ()


def shown(value: Value) -> str:
    """Write a value as a command line does."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def surroundings(ask: Ask, own: Mapping[str, str]) -> dict[str, str]:
    """Everything that an engine finds in its environment: our contract, its own settings, what the user gave."""
    accelerators = [device for device in ask.devices if device != "cpu"]
    return {
        # Without a device of its own an engine must not help itself to one that another holds.
        "CUDA_VISIBLE_DEVICES": ",".join(accelerators),
        "STOKER_PORT": str(ask.port),
        "STOKER_SECRET_FILE": ask.secret_file,
        "STOKER_SERVED_MODEL_NAME": ask.served_name,
        "MODELPLANE_SERVED_MODEL_NAME": ask.served_name,
        "MODELPLANE_LEADER_ADDRESS": "127.0.0.1",
        "MODELPLANE_RANK": "0",
        **own,
        **ask.block.env,
        **ask.env,
    }


def model_path(engine: str, ask: Ask) -> str:
    """Where the model lies; raises Invalid when there is none."""
    if ask.model is None:
        raise Invalid(Fault(message=f"{engine} needs a model", field="spec.model", hint="give model or modelCacheRef"))
    return ask.model.path
