"""Is in force what was asked? Only what both sides state is compared; an engine that does not tell is no difference."""

from stoker.engines.base import Difference, InForce
from stoker.spec.deployment import EngineBlock


def compare(block: EngineBlock, in_force: InForce) -> tuple[Difference, ...]:
    """Name each setting that the engine runs with otherwise than it was asked."""
    pairs = (
        ("contextTokens", block.context_tokens, in_force.context_tokens),
        ("maxSequences", block.max_sequences, in_force.max_sequences),
        ("prefixCache", block.prefix_cache, in_force.prefix_cache),
        ("version", block.version or None, in_force.version),
    )
    return tuple(
        Difference(field=f"spec.engine.{name}", asked=_show(asked), in_force=_show(there))
        for name, asked, there in pairs
        if asked is not None and there is not None and asked != there
    )


def _show(value: str | int | bool) -> str:  # noqa: FBT001 - a value to print
    return str(value).lower() if isinstance(value, bool) else str(value)
