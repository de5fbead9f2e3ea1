"""The options that several commands of `stoker bench` share, and what becomes of them."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import msgspec
import typer
import yaml

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import JsonObject
from stoker.base.units import parse_seconds
from stoker.cli.settings import client_key

if TYPE_CHECKING:
    from stoker.bench.plan import Plan
    from stoker.bench.reach import Reached
    from stoker.decide.measure.bar import Bar

_MOST_USD = 1e6  # an hour
_BARS = {"agent": "coding-agent", "agents": "coding-agent"}


def price(asked: str | float) -> float:
    """Read a price an hour: a number, or cards at the middle of what the catalogue saw. Raises Invalid."""
    words = str(asked).strip()
    count, times, card = words.lower().partition("x")
    if times and count.strip().isdigit():
        return int(count) * _of_a_card(card.strip())
    try:
        value = float(words)
    except ValueError:
        value = -1.0
    if not 0 <= value < _MOST_USD:
        hint = "dollars such as 23.5, or cards such as 8xH200"
        raise Invalid(Fault(message=f"'{words}' is no price an hour", field="--usd-per-hour", hint=hint))
    return value


def _of_a_card(name: str) -> float:
    from stoker.drivers import figures
    from stoker.predict import gpu

    card = gpu.find(figures.gpus(), name, field="--usd-per-hour")
    if card.price is None:
        hint = "say it in dollars"
        raise Invalid(Fault(message=f"no price of {card.name} is known", field="--usd-per-hour", hint=hint))
    return (card.price.low_usd + card.price.high_usd) / 2


Url: TypeAlias = Annotated[str, typer.Argument(help="Where it listens, such as http://127.0.0.1:8080/v1.")]
Model: TypeAlias = Annotated[str, typer.Option("--model", "-m", help="Which model; the first that it lists.")]
Key: TypeAlias = Annotated[str, typer.Option(help="The key; without it STOKER_API_KEY.")]
Dialect: TypeAlias = Annotated[str, typer.Option(help="chat, messages or responses.")]
Profile: TypeAlias = Annotated[
    str, typer.Option(help="chat, agent, agent-cached, rag, batch, reasoning, code-complete, long-chat, tiny.")
]
Trace: TypeAlias = Annotated[Path | None, typer.Option(help="Recorded requests to play: CSV or JSON lines.")]
Scale: TypeAlias = Annotated[float, typer.Option(help="Divide every length by this, for a small model.")]
Context: TypeAlias = Annotated[int, typer.Option(help="Tokens that the model takes: longer prompts are cut.")]
Duration: TypeAlias = Annotated[str, typer.Option(help="How long a step sends: 60s, 5m.")]
Seed: TypeAlias = Annotated[int, typer.Option(help="Which script; the same seed asks the same.")]
Salt: TypeAlias = Annotated[str, typer.Option(help="Words of this run alone; drawn, so that no cache knows them.")]
Answers: TypeAlias = Annotated[
    str, typer.Option(help="Whose words stand for earlier answers: model, or script for equal bytes.")
]
Head: TypeAlias = Annotated[str, typer.Option("--shared", help="The part that all share: first, or last.")]
Exact: TypeAlias = Annotated[bool, typer.Option("--ignore-eos", help="Ask for answers of full length (vLLM, SGLang).")]
Extra: TypeAlias = Annotated[str, typer.Option(help='More members of each request, as JSON: {"temperature": 0}.')]
BarOption: TypeAlias = Annotated[
    str, typer.Option("--bar", help="A file, a use case's manifest, or chat, agent, batch.")
]
Price: TypeAlias = Annotated[
    float, typer.Option(parser=price, help="What the endpoint costs in US dollars an hour: 23.5, or cards: 8xH200.")
]
Ca: TypeAlias = Annotated[str, typer.Option(help="Certificates (PEM) to believe, of a private authority.")]
Timeout: TypeAlias = Annotated[str, typer.Option(help="How long the first byte of an answer may take.")]
Out: TypeAlias = Annotated[Path | None, typer.Option(help="A folder for result.json, requests.jsonl and report.html.")]
Form: TypeAlias = Annotated[str, typer.Option("--output", "-o", help="json or yaml.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the shared options say."""

    url: str
    model: str
    key: str
    dialect: str
    ca: str
    profile: str
    trace: Path | None
    scale: float
    context: int
    duration: str
    salt: str
    answers: str
    head: str
    exact: bool
    extra: str
    timeout: str


def form(asked: str) -> str:
    """Give an output form that exists. Raises Invalid."""
    if asked not in ("", "json", "yaml"):
        raise Invalid(Fault(message=f"'{asked}' is no form", field="--output", hint="json or yaml"))
    return asked


def one_of(word: str, known: tuple[str, ...], *, field: str) -> str:
    """Give a word that exists. Raises Invalid with the nearest."""
    if word not in known:
        hint = nearest(word, known) or f"one of {', '.join(known)}"
        raise Invalid(Fault(message=f"there is no '{word}'", field=field, hint=hint))
    return word


def bar(name: str) -> "Bar | None":
    """Read a bar: a file of its own, a use case's manifest, or a preset's name. Raises Invalid."""
    from stoker.decide.measure import bar as bars
    from stoker.spec.usecase import PRESETS

    if not name:
        return None
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json"):
        return _bar_of(path)
    preset = _BARS.get(name, name)
    if preset not in PRESETS:
        hint = nearest(name, [*PRESETS, *_BARS]) or f"a file, or one of {', '.join(PRESETS)}"
        raise Invalid(Fault(message=f"there is no bar '{name}'", field="--bar", hint=hint))
    return bars.read(cast("JsonObject", PRESETS[preset]["bar"]), file="", name=preset)


def _bar_of(path: Path) -> "Bar":
    from stoker.decide.measure import bar as bars

    try:
        text = path.read_text()
        value = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(Fault(message=why, file=str(path))) from error
    except yaml.YAMLError as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=str(path))) from error
    if isinstance(value, dict) and "kind" in value:
        return _declared(path, text)
    if not isinstance(value, dict):
        raise Invalid(Fault(message="it is no bar", file=str(path), hint="such as visible_ttft_p90_seconds: 2"))
    return bars.read(value, file=str(path), name=path.stem)


def _declared(path: Path, text: str) -> "Bar":
    from stoker.decide.measure import bar as bars
    from stoker.spec import manifest
    from stoker.spec.usecase import UseCaseSpec

    found = [d.spec for d in manifest.load(text, file=str(path)) if d.kind == "UseCase"]
    if len(found) != 1:
        raise Invalid(Fault(message=f"it has {len(found)} UseCases, and one is needed", file=str(path)))
    declared = cast("UseCaseSpec", found[0]).resolved().bar
    if declared is None:
        raise Invalid(Fault(message="its use case has no bar", file=str(path)))
    return bars.read(declared.model_dump(exclude_none=True), file=str(path), name=path.stem)


def plan(wish: Wish, unit: str, *, sessions_rate: float = 0.0) -> "Plan":
    """Put an experiment together. Raises Invalid."""
    from stoker.bench.plan import Plan, Unit, scaled
    from stoker.drivers.figures import given
    from stoker.predict.traffic import trace as traces
    from stoker.predict.traffic.profile import find
    from stoker.predict.traffic.sources import shorter

    one_of(wish.answers, ("model", "script"), field="--answers")
    one_of(wish.head, ("first", "last"), field="--shared")
    recorded = given.traffic(wish.trace) if wish.trace is not None else []
    if recorded and wish.trace is not None:
        profile = traces.profile(recorded, name=wish.trace.name)
    elif wish.profile == "tiny":
        profile = scaled(find("agent"), 64 * wish.scale)
    else:
        profile = scaled(find(wish.profile, field="--profile"), wish.scale)
    return Plan(
        unit=Unit.SPEED if recorded else Unit(unit),
        window_seconds=parse_seconds(wish.duration),
        profile=shorter(profile, wish.context),
        recorded=recorded,
        salt=wish.salt or secrets.token_hex(3),
        model_answers=wish.answers == "model",
        head_last=wish.head == "last",
        exact=wish.exact,
        extra=_members(wish.extra),
        first_byte_seconds=parse_seconds(wish.timeout),
        sessions_rate=sessions_rate,
    )


def reach(wish: Wish, *, tools: bool) -> "Reached":
    """Find the target. Raises Invalid."""
    from stoker.bench import reach as reaching
    from stoker.bench.load.target import Target, base_url, checked_dialect

    target = Target(
        url=base_url(wish.url),
        model=wish.model,
        dialect=checked_dialect(wish.dialect),
        key=wish.key or client_key(),
        cert_file=wish.ca,
    )
    return reaching.reach(target, tools=tools)


def _members(text: str) -> bytes:
    """Take the braces off a JSON object, so that its members can stand in each request. Raises Invalid."""
    if not text:
        return b""
    try:
        value = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError as error:
        hint = 'such as {"temperature": 0}'
        raise Invalid(Fault(message=f"it is no JSON object: {error}", field="--extra", hint=hint)) from error
    return msgspec.json.encode(value)[1:-1]
