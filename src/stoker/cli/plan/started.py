"""A start as it was seen: in a log, or by asking the live engine."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoker.base.errors import Driver, Fault, Invalid, nearest
from stoker.base.json import Json
from stoker.drivers.request import Call, fetch
from stoker.engines.base import LogFacts
from stoker.engines.parts import asked
from stoker.engines.parts.asked import Asked
from stoker.engines.registry import get

if TYPE_CHECKING:
    from stoker.drivers.weights import Survey
    from stoker.predict.fits import Plan
    from stoker.predict.gpu import Gpu

# What only one engine writes.
_MARKS: Final = (
    ("vllm", r"vLLM|vllm\b|LLM engine \(v|Available KV cache memory"),
    ("sglang", r"sglang|max_total_num_tokens|ServerArgs\("),
    ("llama.cpp", r"llama_|load_model: |n_ctx_slot|srv  "),
)
_ENGINES: Final = tuple(name for name, _ in _MARKS)
_RESIDENT: Final = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What is known of a start."""

    engine: str
    version: str
    facts: LogFacts
    asked: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user says of it; 0 and auto: as it was seen."""

    tp: int
    length: int
    sessions: int
    utilization: float
    kv_dtype: str


def from_log(path: Path, engine: str) -> Started:
    """Read a start-up log; raises Invalid for a file that no engine wrote."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(path))) from error
    name, _, version = engine.partition("@")
    name = _known(name) if name else next((each for each, mark in _MARKS if re.search(mark, text)), "")
    if not name:
        hint = "name it with --engine"
        raise Invalid(Fault(message="no engine is known to write such a log", file=str(path), hint=hint))
    facts = get(name).read_log(text.splitlines())
    return Started(engine=name, version=version or facts.version or "", facts=facts, asked=asked.read(text))


def from_engine(url: str, key_file: Path | None, engine: str) -> Started:
    """Ask a live engine; raises Driver when it does not answer, Invalid when it is of no kind that is known."""
    name, _, version = engine.partition("@")
    headers = {}
    if key_file is not None:
        try:
            headers["authorization"] = f"Bearer {key_file.read_text().strip()}"
        except OSError as error:
            raise Invalid(Fault(message=error.strerror or str(error), file=str(key_file))) from error
    for candidate in (_known(name),) if name else _ENGINES:
        answers = _answers(url.rstrip("/"), get(candidate).probes.in_force, headers)
        told = get(candidate).in_force(answers)
        if told.kv_cache_tokens is not None:
            return Started(
                engine=candidate,
                version=version or told.version or "",
                facts=LogFacts(ready=True, kv_cache_tokens=told.kv_cache_tokens),
                asked=_asked(answers.get("/metrics"), told.context_tokens or 0, told.max_sequences or 0),
            )
    raise Driver(f"{url} does not say how large its cache is; tell which engine it is with --engine, or give its log")


def _asked(metrics: Json, context: int, sequences: int) -> Asked:
    """Settings in force; vLLM's metrics page repeats its share of the card in a label."""
    from_page = asked.read(metrics) if isinstance(metrics, str) else Asked()
    return replace(from_page, context=context, sequences=sequences)


def _answers(url: str, paths: tuple[str, ...], headers: dict[str, str]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for path in paths:
        reply = fetch(Call(url=f"{url}{path}", headers=headers))
        if reply.status == 200:
            found[path] = reply.body.decode(errors="replace") if path == "/metrics" else reply.json()
        elif reply.status in (401, 403):
            raise Driver(f"{url}{path} asks for a key: give --key-file")
    return found


def _known(name: str) -> str:
    if name not in _ENGINES:
        hint = nearest(name, _ENGINES) or f"one of {', '.join(_ENGINES)}"
        raise Invalid(Fault(message=f"starts of '{name}' cannot be checked", field="--engine", hint=hint))
    return name


def plan(found: "Survey", told: Started, gpu: "Gpu", *, wish: Wish) -> "Plan":
    """Plan what was started, by the formulas alone."""
    from stoker.drivers import figures
    from stoker.predict import fits, overhead
    from stoker.predict.roles import Split

    seen = told.asked
    narrow = (wish.kv_dtype if wish.kv_dtype != "auto" else seen.kv_dtype).startswith("fp8")
    wide = 4 if seen.dtype == "float32" else 2
    length = wish.length or seen.context or found.shape.context_tokens
    return fits.plan(
        fits.Ask(
            parts=found.parts,
            shape=found.shape,
            gpu=gpu,
            split=Split(
                tensor=wish.tp or seen.tensor or 1,
                pipeline=seen.pipeline or 1,
                data=seen.data or 1,
                element_bytes=wide,
                quantize_to_bytes=1.0 if seen.quantization == "fp8" and not found.quantization else 0.0,
            ),
            load=overhead.Load(
                utilization=wish.utilization or seen.utilization,
                batch_tokens=seen.batch_tokens,
                sequences=seen.sequences if told.engine != "llama.cpp" else 0,
            ),
            engine=told.engine,
            version=told.version if told.version[:1].isdigit() else "",
            kv_element_bytes=1.0 if narrow else float(wide),
            context_tokens=min(length, found.shape.context_tokens or length),
            sessions=wish.sessions or (seen.sequences if told.engine == "llama.cpp" else 0),
            quantization=found.quantization,
        ),
        figures.coefficients(),
    )


def memory(pid: int) -> float:
    """Resident bytes of a process of this machine; raises Invalid for one that is not there."""
    try:
        found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text())
    except OSError as error:
        raise Invalid(Fault(message=f"there is no process {pid} to look at", field="--pid")) from error
    if found is None:
        raise Invalid(Fault(message=f"process {pid} has no memory of its own", field="--pid"))
    return float(found[1]) * 1024
