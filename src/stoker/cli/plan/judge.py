"""How wrong is the planner? `stoker plan judge` and `stoker plan fit`, on any files of measurements."""

import csv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.base.errors import Fault, Invalid
from stoker.base.json import JsonObject
from stoker.cli import output

if TYPE_CHECKING:
    from stoker.predict.timing.refit import Measured

_ROWS = "Measured times, in the columns of tests/data/planner/latency_rows.csv."
_CASES = "Start-up logs, in the fields of tests/data/planner/memory_cases.json."
_MODELS = "Models of the rows and cases, in the fields of tests/data/planner/models.json; may be given again."


def judge(
    *,
    models: Annotated[list[Path], typer.Option(help=_MODELS)],
    rows: Annotated[Path | None, typer.Option(help=_ROWS)] = None,
    cases: Annotated[Path | None, typer.Option(help=_CASES)] = None,
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Print the errors of predictions for models and systems that the fit has not seen."""
    found: JsonObject = {}
    if cases:
        found |= _memory(cases, models)
    if rows:
        found |= _time(rows, models)
    if not found:
        raise Invalid(Fault(message="there is nothing to judge", hint="give --rows, --cases or both"))
    if form:
        output.data(found, form)
        return
    output.table(
        ("WHAT", "ROWS", "MEDIAN", "90 %", "LARGEST"),
        [
            (name, output.text(told, "rows"), *(f"{_share(told, key):.2%}" for key in ("median", "p90", "largest")))
            for name, told in found.items()
        ],
    )


def fit(
    *,
    models: Annotated[list[Path], typer.Option(help=_MODELS)],
    rows: Annotated[Path, typer.Option(help=_ROWS)],
    write: Annotated[Path | None, typer.Option(help="The data file to write; otherwise it is printed.")] = None,
) -> None:
    """Fit the coefficients of time to measured rows, with the residuals of models that were left out."""
    import msgspec

    from stoker.predict.timing import refit, rehearsed

    measured = _measured(rows, models)
    told = refit.summary(measured)
    told = msgspec.structs.replace(told, simulation=rehearsed.calibrate(measured, told.coefficients))
    data = msgspec.json.format(msgspec.json.encode(told, order="sorted"), indent=1)
    if write:
        write.write_bytes(data + b"\n")
    else:
        print(data.decode())


def _memory(cases: Path, models: list[Path]) -> JsonObject:
    from stoker.drivers import figures
    from stoker.predict import learn
    from stoker.predict.cases import start
    from stoker.predict.coefficients import memory

    known = figures.model_rows(models)
    starts = [found for row in figures.log_rows(cases) if (found := start(row, known.get(row.model.lower())))]
    row = memory(figures.coefficients(), "vllm", "0.19.0")
    held = [each for each in starts if memory(figures.coefficients(), "vllm", each.version) == row]
    by_checkpoint = [each.error for each in learn.judge(held, row, lambda s: s.weights)]
    by_log = [each.error for each in learn.judge(held, row, lambda s: s.logged_weights)]
    return {
        "KV GiB from checkpoint, model left out": _errors(by_checkpoint),
        "KV GiB from logged weights, model left out": _errors(by_log),
    }


def _time(rows: Path, models: list[Path]) -> JsonObject:
    from stoker.predict.timing import refit

    measured = _measured(rows, models)
    found: JsonObject = {}
    families = [refit.family(name) for name in measured.model]
    for title, groups in (("model", families), ("system", list(measured.system))):
        errors = refit.leave_out(measured, groups)
        found[f"TPOT, {title} left out"] = _errors(abs(errors.tpot).tolist())
        found[f"TTFT, {title} left out"] = _errors(abs(errors.ttft).tolist())
        if title == "model":
            load = [f"{d} {n}" for d, n in zip(measured.deployment, measured.lengths, strict=True)]
            for what, keys in (("deployment", list(measured.deployment)), ("deployment and lengths", load)):
                left = refit.anchored(errors, measured, keys)
                found[f"TPOT, one point of the same {what}"] = _errors(abs(left.tpot).tolist())
                found[f"TTFT, one point of the same {what}"] = _errors(abs(left.ttft).tolist())
    return found


def _measured(rows: Path, models: list[Path]) -> "Measured":
    from stoker.drivers import figures
    from stoker.predict.timing import rows as read_rows

    known = {name: row.shape for name, row in figures.model_rows(models).items()}
    try:
        with rows.open(newline="") as file:
            table = list(csv.DictReader(file))
        measured = read_rows.read(table, known, figures.gpus())
    except (OSError, KeyError, ValueError) as error:
        raise Invalid(Fault(message=f"it cannot be read: {error}", file=str(rows))) from error
    if not len(measured.tpot):
        raise Invalid(Fault(message="no row has a model that --models describes", file=str(rows)))
    return measured


def _errors(errors: list[float]) -> JsonObject:
    ordered = sorted(errors)
    if not ordered:
        return {"rows": 0, "median": None, "p90": None, "largest": None}
    p90 = ordered[int(0.9 * (len(ordered) - 1))]
    return {"rows": len(ordered), "median": median(ordered), "p90": p90, "largest": ordered[-1]}


def _share(told: object, key: str) -> float:
    value = told.get(key) if isinstance(told, dict) else None
    return value if isinstance(value, float) else float("nan")
