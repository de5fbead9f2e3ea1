"""What could the person who measures do about what went wrong? Only what the answers themselves show."""

from collections.abc import Iterable

import msgspec

from stoker.decide.measure.sample import Sample
from stoker.wire.faults import Kind, recognise


def advice(samples: Iterable[Sample]) -> tuple[str, ...]:
    """Say it in a sentence each."""
    long, context, strangers = 0, 0, 0
    for sample in samples:
        strangers += sample.status in (401, 403)
        if not sample.message or sample.good:
            continue
        fault = recognise(sample.status, msgspec.json.encode({"error": {"message": sample.message}}))
        if fault.kind is Kind.OVERFLOW:
            long += 1
            context = context or fault.context
    found = []
    if long:
        cut = f"--context {context}" if context else "--context N"
        found.append(f"prompts longer than the model takes: {long}; {cut} cuts them, --scale N divides all lengths")
    if strangers:
        found.append(f"refused for their key: {strangers}; did it end while we measured?")
    return tuple(found)
