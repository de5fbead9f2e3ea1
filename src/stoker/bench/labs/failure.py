"""A failure that most tools do not see, caused on purpose: answers that end early and cleanly."""

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Final

from stoker.base.json import JsonObject
from stoker.decide.measure.sample import Sample

BEHAVIOUR: Final[JsonObject] = {
    "tokens": 40,
    "tokens_per_second": 200.0,
    "calls": 0,
    "rota": [{}, {}, {}, {"cut_after_tokens": 12, "cut": "clean"}],
}
QUESTION: Final = "What does it look like when one answer in four is cut, and nothing reports an error?"
METHOD: Final = (
    "The rehearsal engine ends every fourth answer after 12 of 40 tokens: HTTP 200, the body complete, no terminator."
)


def surprise(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Say what the numbers show."""
    kinds = Counter(sample.kind.value for sample in samples)
    share = kinds["truncated"] / max(1, len(samples))
    good = [s for s in samples if s.good]
    cut = [s for s in samples if s.kind.value == "truncated"]
    mean = [sum(s.total_seconds for s in some) / max(1, len(some)) for some in (good, cut)]
    return (
        f"{share:.0%} of the answers were cut, every one of them with HTTP 200 and a whole body.",
        f"They made the endpoint look faster: {mean[1] * 1000:.0f} ms against {mean[0] * 1000:.0f} ms.",
        "Whoever counts status codes, or the mean latency, sees a good day.",
    )


MORE: Final = resources.files("stoker.bench.labs").joinpath("failure.md").read_text()
