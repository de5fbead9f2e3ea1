"""Does a client's set-up work? One turn with tools in that client's own requests, and what to change where it fails."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from stoker.checks.clients.base import Client, Service, room
from stoker.checks.conformance import suite, surface
from stoker.checks.conformance.probe import Finding, Probe, State, Talk, failed, passed
from stoker.checks.conformance.suite import Row

_ALWAYS: Final = ("stream", "tools", "unknown-members", "bad-json")
_AGENTS: Final = ("claude-code", "codex", "opencode")
_FIXES: Final = {
    "room": "raise spec.engine.contextTokens of the deployment, or lower spec.limits.maxOutputTokens of the service",
    "model": "--model, or spec.aliases of the ModelService: an alias may carry the name that the client asks for",
    "auxiliary": "--auxiliary, or an alias for that name in spec.aliases of the ModelService",
    "tools": "set spec.engine.toolParser of the deployment, or choose a model that calls tools",
}


def check(client: Client, service: Service) -> Iterator[Row]:
    """Run what this client needs, one row each."""
    talk = Talk(url=service.origin, key=service.key, model=service.model)
    listed = surface.models(talk)
    for name, model in (("model", service.model), ("auxiliary", service.small)):
        yield Row(name=name, what=f"the {name} '{model}' can be used", finding=_listed(talk, model, listed, name))
    notes = room(service, client.prompt_bytes)
    found = failed(notes[0], _FIXES["room"]) if notes else passed(f"{service.context_tokens or 'unknown'} tokens")
    yield Row(name="room", what="the client's own prompt and an answer fit into the context", finding=found)
    for row in suite.run(talk, probes(client), demanded=[client.dialect]):
        yield _strict(row, client)


def probes(client: Client) -> tuple[Probe, ...]:
    """Choose the probes that a client depends on: its dialect's ways, and its own recorded requests."""
    names = tuple(f"{client.dialect}.{name}" for name in _ALWAYS)
    replays = f"{client.dialect}.replay-{client.name if client.name in _AGENTS else 'python-sdks'}"
    return tuple(p for p in suite.chosen([client.dialect]) if p.name in names or p.name.startswith(replays))


def _listed(talk: Talk, model: str, listed: list[str], kind: str) -> Finding:
    if model in listed:
        return passed("it is in the list of models")
    hint = (
        f"the list has {', '.join(listed)}"
        if listed
        else f"no list: {replace(talk, model='').get(surface.MODELS).shown}"
    )
    return failed(f"'{model}' is not there; {hint}", _FIXES[kind])


def _strict(row: Row, client: Client) -> Row:
    """An agent without tool calls is no agent: what may be skipped elsewhere fails here."""
    if row.name.endswith(".tools") and row.finding.state is State.SKIP and client.name in _AGENTS:
        return Row(name=row.name, what=row.what, finding=failed(row.finding.evidence, _FIXES["tools"]))
    return row
