"""What does this request share with others that a replica may have cached? Its session, else the head of its prompt."""

from typing import Final

from stoker.decide.steer.affinity import seed
from stoker.gateway.fleet import ServiceState
from stoker.wire import normalise, prompt
from stoker.wire.request import Asked

_BY_PREFIX: Final = "PrefixCache"


def given_session(service: ServiceState, headers: dict[bytes, bytes], asked: Asked) -> bytes:
    """Find the session that the client names, in the service's own header or in one that a known client sends."""
    named = service.session_header
    if named and named in headers:
        return headers[named]
    return prompt.given_session(headers, asked.session_key)


def routing_key(service: ServiceState, given: bytes, asked: Asked, talk: bytes) -> tuple[int, tuple[str, ...]]:
    """Make the key to route by, 0 for none, and name the rules that took something volatile out of it.

    ``talk``: the conversation, where there is nothing else and it was copied already.

    Nothing is computed where there is nothing to choose. The key is not salted, so that gateways on two machines agree;
    it is never stored.
    """
    spec = service.spec
    if not service.several or spec.policy != _BY_PREFIX:
        return 0, ()
    if given:
        return seed(given), ()
    if not spec.normalise:
        return seed(prompt.opening(asked.head(prompt.HEAD_BYTES))), ()
    if talk:
        head, rules = normalise.steady(prompt.opening(talk))
    else:
        head, rules = prompt.head(asked.conversation(prompt.HEAD_BYTES), tools=bytes(asked.tools))
    return seed(head), rules
