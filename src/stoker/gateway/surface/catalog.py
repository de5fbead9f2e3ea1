"""Which models may this caller use, and in which shape does its client read the list?"""

from typing import Final
from urllib.parse import unquote_to_bytes

from stoker.base.errors import nearest
from stoker.gateway.fleet import Fleet
from stoker.gateway.identity import Grant
from stoker.gateway.troubles import Trouble
from stoker.wire.say import models as shapes

PATH: Final = b"/v1/models"
_NAMED: Final = 20  # models that an error message lists


def names(fleet: Fleet, grant: Grant | None) -> list[str]:
    """Name the models that a caller may use, each by every name that selects it."""
    return [name for name, service in fleet.by_model.items() if grant is None or grant.may_use(service.spec.name)]


def asked_for(path: bytes) -> str | None:
    """Read the name out of the path, None where the whole list is wanted."""
    rest = path[len(PATH) :].strip(b"/")
    return unquote_to_bytes(path[len(PATH) + 1 :]).decode("utf-8", "replace") if rest else None


def page(mine: list[str], name: str | None, *, headers: dict[bytes, bytes], created: int) -> bytes:
    """Write the list, or one model of it; anthropic clients send their version, and get their shape."""
    if b"anthropic-version" in headers:
        if name is None:
            return shapes.anthropic_models(mine, created=created)
        return shapes.anthropic_model(name, created=created)
    return shapes.openai_models(mine, created=created) if name is None else shapes.openai_model(name, created=created)


def missing(name: str, mine: list[str]) -> Trouble:
    """Say that there is no such model for this caller, which one is meant perhaps, and which there are."""
    hint = nearest(name, mine)
    message = f"The model '{name[:200]}' does not exist or you may not use it."
    if hint:
        message += " " + hint[:1].upper() + hint[1:]
    if mine:
        more = f" and {len(mine) - _NAMED} more" if len(mine) > _NAMED else ""
        message += f" You may use: {', '.join(mine[:_NAMED])}{more}."
    else:
        message += " No model is open to this credential."
    return Trouble(status=404, code="model_not_found", message=message)
