"""What is in a model? `stoker model show`."""

from typing import TYPE_CHECKING, Annotated

import typer

from stoker.base.json import Json, JsonObject
from stoker.base.units import show_bytes
from stoker.cli import output

if TYPE_CHECKING:
    from stoker.drivers.weights import Survey

app = typer.Typer(help="What is in a model.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """What is in a model."""


@app.command()
def show(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="A .gguf file, a folder, REPO[@REVISION], or a name of `stoker models`.")
    ],
    *,
    file: Annotated[str, typer.Option(help="Which file of a repository with several GGUF models.")] = "",
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Show a model's layers, its true bytes by role and dtype, its limit and its licence; nothing is loaded."""
    from stoker.cli.plan.source import find

    told = _as_json(find(model, context.obj, file=file))
    if form:
        output.data(told, form)
        return
    for name in ("name", "format", "architecture", "licence", "quantization", "dtype"):
        if told[name]:
            print(f"{name:14} {told[name]}")
    print(f"{'context':14} {told['context_tokens'] or 'it does not say'} tokens")
    print(f"{'layers':14} {_pairs(told['layers'])}")
    print(f"{'kv':14} {told['kv_bytes_per_token']} bytes a token in 16 bits, on one rank")
    print(
        f"{'template':14} {'yes' if told['chat_template'] else 'no'}; {_list(told['parsers']) or 'no parser is hinted'}"
    )
    total = told["weight_bytes"]
    print(f"{'weights':14} {show_bytes(_number(total))} in {told['files']} files; {_pairs(told['bytes_by_dtype'])}\n")
    roles = told["bytes_by_role"]
    rows = [
        (name, show_bytes(_number(size)), f"{_number(size) / max(1.0, _number(total)):.1%}")
        for name, size in (roles.items() if isinstance(roles, dict) else ())
    ]
    output.table(("ROLE", "BYTES", "SHARE"), rows)
    for part in (*_items(told["unknown"]), *_items(told["unknown_tensors"])):
        output.err.print(f"[yellow]not understood:[/yellow] {part}")


def _as_json(found: "Survey") -> JsonObject:
    from stoker.predict.kv import Cut, bytes_per_token
    from stoker.predict.shape import known_parts

    shape, parts = found.shape, found.parts
    return {
        "name": found.name,
        "format": found.format,
        "architecture": shape.architecture,
        "licence": found.licence,
        "quantization": found.quantization,
        "dtype": found.dtype,
        "context_tokens": shape.context_tokens,
        "layers": known_parts(shape.layers),
        "hidden": shape.hidden,
        "heads": shape.heads,
        "vocab": shape.vocab,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "draft_layers": shape.draft_layers,
        "vision": shape.vision,
        "kv_bytes_per_token": round(bytes_per_token(shape, Cut())),
        "chat_template": found.chat_template,
        "parsers": list(found.parsers),
        "files": found.files,
        "weight_bytes": parts.total_bytes,
        "bytes_by_dtype": dict(parts.by_dtype()),
        "bytes_by_role": {role.value: size for role, size in parts.by_role().items()},
        "unknown": list(shape.unknown),
        "unknown_tensors": list(parts.unknown[:20]),
        "hub_requests": found.requests,
    }


def _number(value: Json) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _items(value: Json) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _list(value: Json) -> str:
    return ", ".join(_items(value))


def _pairs(value: Json) -> str:
    if not isinstance(value, dict):
        return ""
    return ", ".join(f"{n if not name[0].isupper() else show_bytes(_number(n))} {name}" for name, n in value.items())
