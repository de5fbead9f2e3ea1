"""Keys: create, list, revoke. A key is shown once; Stoker keeps only its hash."""

from typing import Annotated

import typer

from stoker.base.units import parse_seconds
from stoker.cli import output
from stoker.cli.output import err, items, text
from stoker.cli.resources import client
from stoker.cli.settings import Settings

app = typer.Typer(help="API keys of callers.", no_args_is_help=True)


@app.command()
def create(
    context: typer.Context,
    caller: Annotated[str, typer.Argument(help="The Caller that the key belongs to; made if there is none.")],
    *,
    expires: Annotated[str, typer.Option(help="How long it lives: 30d, 12h; 0 for ever.")] = "90d",
    service: Annotated[list[str], typer.Option(help="ModelServices that a new caller may use (all).")] = [],  # noqa: B006
) -> None:
    """Make a key and print it, this once."""
    settings: Settings = context.obj
    answer = client(context).post(
        "/v1/keys",
        {
            "caller": caller,
            "namespace": settings.namespace,
            "lifeSeconds": parse_seconds(expires if expires != "0" else 0),
            "services": list(service),
        },
    )
    for warning in answer.get("warnings") or []:  # type: ignore[union-attr]
        err.print(f"[yellow]warning:[/yellow] {warning}")
    err.print(f"key {text(answer, 'id')} of caller {caller}; it is shown only now:")
    print(text(answer, "key"))


@app.command("list")
def list_keys(context: typer.Context) -> None:
    """List the keys: whose, since when, until when. Never the keys themselves."""
    page = client(context).get("/v1/keys")
    rows = [
        (text(k, "id"), text(k, "caller"), text(k, "state"), text(k, "expires"), text(k, "services"))
        for k in items(page, "items")
    ]
    output.table(("ID", "CALLER", "STATE", "EXPIRES", "SERVICES"), rows)


@app.command()
def revoke(context: typer.Context, key_id: str) -> None:
    """Revoke a key; returns when every gateway worker refuses it. Open streams finish."""
    answer = client(context).post(f"/v1/keys/{key_id}/revoke", {}, timeout=30)
    print(f"key {key_id} revoked; {text(answer, 'message')}")
