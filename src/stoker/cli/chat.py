"""A short talk with a model, to see that it answers."""

import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from stoker.base.errors import Driver, Fault, Invalid
from stoker.base.json import Json, JsonObject
from stoker.cli.output import err, get, items, text
from stoker.cli.resources import client
from stoker.drivers.request import Call, stream


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(chat)


def chat(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="What to ask; without it, a conversation.")] = "",
    *,
    model: Annotated[str, typer.Option("--model", "-m", help="Which model; the only one if there is one.")] = "",
    max_tokens: Annotated[int, typer.Option(help="The longest answer.")] = 256,
) -> None:
    """Ask a model through the gateway, with a key that lives five minutes."""
    api = client(context)
    status = api.get("/v1/status")
    models = [text(s, "model") for s in items(status, "services") if s.get("routable")]
    if not models:
        raise Invalid("no model is ready: `stoker status` tells why")
    if model and model not in models:
        raise Invalid(Fault(message=f"no ready model is called '{model}'", field="--model", hint=", ".join(models)))
    if not model and len(models) != 1:
        raise Invalid(f"say which model: --model {' | '.join(models)}")
    key = text(
        api.post("/v1/keys", {"caller": "chat", "namespace": "default", "lifeSeconds": 300, "wait": True}), "key"
    )
    talk: list[Json] = []
    for line in [prompt] if prompt else _typed():
        talk.append({"role": "user", "content": line})
        body: JsonObject = {
            "model": model or models[0],
            "messages": list(talk),
            "stream": True,
            "max_tokens": max_tokens,
        }
        answer = "".join(_answer(status, key, body))
        talk.append({"role": "assistant", "content": answer})


def _typed() -> Iterator[str]:
    err.print("type a line and Enter; Ctrl-D ends")
    while True:
        try:
            yield input("> ")
        except EOFError:
            return


def _answer(status: JsonObject, key: str, body: JsonObject) -> Iterator[str]:
    """Print the pieces of an answer as they come. Raises Driver when it broke off."""
    call = Call(
        url=f"{text(status, 'endpoint')}/chat/completions",
        method="POST",
        headers={"authorization": f"Bearer {key}", "content-type": "application/json"},
        body=msgspec.json.encode(body),
        timeout=600,
        trusted_cert_file=text(status, "certificate"),
    )
    for line in stream(call):
        data = line.strip().removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = msgspec.json.decode(data)
        if get(event, "error"):
            raise Driver(f"the answer broke off: {text(event, 'error', 'message')}")
        for choice in items(event, "choices"):
            piece = text(choice, "delta", "content")
            sys.stdout.write(piece)
            sys.stdout.flush()
            yield piece
    sys.stdout.write("\n")
