"""What clients ask for besides generation: the models in both shapes, a sign of life, the door."""

from typing import Final

from stoker.checks.conformance.chat import ask, error_problems
from stoker.checks.conformance.messages import VERSION
from stoker.checks.conformance.probe import Finding, Probe, Talk, at, failed, judged, passed, rows, skipped, words

MODELS: Final = "/v1/models"


def models(talk: Talk) -> list[str]:
    """List the models, in whichever shape."""
    return [words(row.get("id")) for row in rows(at(talk.get(MODELS).value, "data"))]


def _openai_models(talk: Talk) -> Finding:
    got = talk.get(MODELS)
    listed = rows(at(got.value, "data"))
    if got.status != 200 or at(got.value, "object") != "list":
        return failed(got.shown)
    wrong = [row for row in listed if row.get("object") != "model" or not words(row.get("id"))]
    missing = [] if talk.model in [row.get("id") for row in listed] else [f"'{talk.model}' is not in the list"]
    return judged([f"an entry is {wrong[0]}"] if wrong else missing, f"{len(listed)} models")


def _anthropic_models(talk: Talk) -> Finding:
    got = talk.get(MODELS, headers=VERSION)
    listed = rows(at(got.value, "data"))
    whole = all(row.get("type") == "model" and words(row.get("display_name")) for row in listed)
    if got.status == 200 and at(got.value, "object") == "list" and not whole:
        return skipped("it has the OpenAI shape only")
    right = got.status == 200 and listed and whole and at(got.value, "has_more") is False
    return judged([] if right else [got.shown], f"{len(listed)} models")


def _one_model(talk: Talk) -> Finding:
    got = talk.get(f"{MODELS}/{talk.model}")
    if got.status == 404 and "/" in talk.model:
        return skipped("the name has a slash, which it does not take in a path")
    if got.status == 404:
        return skipped("not served; no known client asks for it")
    return judged([] if at(got.value, "id") == talk.model else [got.shown], got.shown)


def _sign(talk: Talk) -> Finding:
    got = talk.get("/", method="HEAD")
    if got.status == 200:
        return passed("200")
    return failed(got.trouble) if got.trouble else skipped(f"{got.status}; Claude Code 2.1.197 asks and goes on")


def _wrong_key(talk: Talk) -> Finding:
    if not talk.key:
        return skipped("no key was given")
    got = talk.post("/v1/chat/completions", ask(talk), headers={"authorization": "Bearer stoker-no-such-key"})
    if got.status == 200:
        return failed("a wrong key is good enough", "close the surface: give the engine or the gateway keys")
    return judged(error_problems(got.status, got.value, 401, 403), got.shown)


PROBES: Final = (
    Probe(name="models.openai", what="the list of models in OpenAI's shape", run=_openai_models),
    Probe(name="models.anthropic", what="the same in Anthropic's shape, for anthropic-version", run=_anthropic_models),
    Probe(name="models.one", what="one model by its name", run=_one_model),
    Probe(name="door.head", what="HEAD / is answered", run=_sign),
    Probe(name="door.wrong-key", what="a wrong key is a readable 401", run=_wrong_key),
)
