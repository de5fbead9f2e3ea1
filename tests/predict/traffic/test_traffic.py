"""Does generated traffic look like what was measured or reported?"""

from itertools import islice, pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.drivers.figures import given as files
from stoker.predict.batching.score import quantile
from stoker.predict.traffic import profile as profiles
from stoker.predict.traffic import sources, trace
from stoker.predict.traffic.draw import LogNormal
from stoker.predict.traffic.profile import PROFILES
from stoker.predict.traffic.sessions import Turn, session


def turns(name: str, count: int = 20_000) -> list[Turn]:
    rng, found = Random(7), []
    while len(found) < count:
        found += session(PROFILES[name], rng)
    return found


@pytest.mark.parametrize(
    ("name", "what", "points", "error"),
    [
        pytest.param("chat", "prompt_tokens", {0.1: 207, 0.5: 1020, 0.9: 2734}, 0.05, id="Azure conversation in"),
        pytest.param("chat", "output_tokens", {0.5: 129, 0.9: 424, 0.99: 601}, 0.05, id="Azure conversation out"),
        pytest.param("code-complete", "prompt_tokens", {0.1: 147, 0.5: 1469, 0.9: 5188}, 0.07, id="Azure code in"),
        pytest.param("long-chat", "prompt_tokens", {0.1: 964, 0.5: 6909, 0.9: 27367}, 0.07, id="Mooncake in"),
        pytest.param("agent", "prompt_tokens", {0.5: 59_000, 0.9: 125_000}, 0.05, id="reported agents"),
    ],
)
def test_lengths_are_those_of_the_source(name: str, what: str, points: dict[float, float], error: float) -> None:
    ordered = sorted(getattr(turn, what) for turn in turns(name))

    for share, want in points.items():
        assert quantile(ordered, share) == pytest.approx(want, rel=error)


@pytest.mark.parametrize(
    ("name", "want", "error"),
    [("agent", 2 / 3, 0.03), ("agent-cached", 0.93, 0.02), ("long-chat", 0.366, 0.06), ("rag", 0.14, 0.02)],
)
def test_how_much_of_the_prompts_was_there_before(name: str, want: float, error: float) -> None:
    found = turns(name)

    assert sum(t.shared_tokens for t in found) / sum(t.prompt_tokens for t in found) == pytest.approx(want, abs=error)


@pytest.mark.parametrize("name", list(PROFILES))
def test_every_turn_can_be_asked(name: str) -> None:
    for turn in turns(name, 3000):
        assert turn.prompt_tokens >= turn.shared_tokens >= 0
        assert turn.output_tokens > turn.hidden_tokens >= 0 or turn.output_tokens == turn.hidden_tokens + 1
    assert PROFILES[name].in_flight(10.0) <= PROFILES[name].active * PROFILES[name].parallel


def test_agents_think_before_they_speak() -> None:
    found = turns("agent", 2000)

    assert sum(t.hidden_tokens for t in found) / sum(t.output_tokens for t in found) == pytest.approx(0.5, abs=0.01)


def test_the_same_seed_gives_the_same_load() -> None:
    loads = [list(sources.Open(PROFILES["agent"], 2.0, Random(5), requests=50).begin()) for _ in range(2)]

    assert loads[0] == loads[1]


@pytest.mark.parametrize(("name", "variation"), [("chat", 1.0), ("code-complete", 2.0)])
def test_arrivals_come_at_the_rate_and_in_bursts(name: str, variation: float) -> None:
    times = [a.at for a in sources.Open(PROFILES[name], 5.0, Random(2), requests=20_000).begin()]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5

    assert mean == pytest.approx(0.2, rel=0.05)
    assert spread / mean == pytest.approx(variation, rel=0.1)


def test_a_client_goes_on_with_its_session() -> None:
    source = sources.Closed(PROFILES["agent"], 1, Random(1), pauses=True)
    request, now, seen = source.begin()[0].request, 0.0, []
    for _ in range(200):
        arrival = source.after(request, now)
        seen.append(arrival.at - now)
        same = arrival.request.session == request.session
        assert not same or arrival.request.shared_tokens >= request.head_tokens
        request, now = arrival.request, arrival.at

    assert sum(seen) / len(seen) == pytest.approx(PROFILES["agent"].gap_seconds.mean, rel=0.4)


def test_a_smaller_context_compacts_earlier() -> None:
    short = sources.shorter(PROFILES["agent"], 32_768)
    found = [turn for _ in range(200) for turn in islice(session(short, Random(_)), 30)]

    assert max(turn.prompt_tokens for turn in found) <= 32_768
    assert sources.shorter(PROFILES["chat"], 0) is PROFILES["chat"]


@given(context=st.integers(512, 300_000), name=st.sampled_from(sorted(PROFILES)))
def test_no_request_is_longer_than_the_context(context: int, name: str) -> None:
    cut, rng = sources.shorter(PROFILES[name], context), Random(1)

    for turn in [turn for _ in range(5) for turn in islice(session(cut, rng), 20)]:
        assert turn.prompt_tokens + turn.output_tokens <= context
        assert turn.shared_tokens <= turn.prompt_tokens


AZURE = [
    {"TIMESTAMP": "2023-11-16 18:15:46.6805900", "ContextTokens": "374", "GeneratedTokens": "44"},
    {"TIMESTAMP": "2023-11-16 18:15:50.9951690", "ContextTokens": "396", "GeneratedTokens": "109"},
]
MOONCAKE = [
    {"timestamp": 3000, "input_length": 1200, "output_length": 8, "hash_ids": [1, 2, 3]},
    {"timestamp": 0, "input_length": 1024, "output_length": 9, "hash_ids": [1, 2]},
]


def test_public_traces_are_read() -> None:
    azure, mooncake = trace.read(AZURE, file="a.csv"), trace.read(MOONCAKE, file="m.jsonl")

    assert azure[1].at - azure[0].at == pytest.approx(4.3146, abs=1e-3)
    assert [a.request.prompt_tokens for a in azure] == [374, 396]
    assert [(a.at, a.request.prompt_tokens) for a in mooncake] == [(0.0, 1024), (3.0, 1200)]
    assert [a.at for a in sources.Trace(mooncake, speed=2.0).begin()] == [0.0, 1.5]


def test_a_trace_tells_what_was_there_before() -> None:
    rows = [{"at_seconds": i, "prompt_tokens": 100 * (i + 1), "output_tokens": 5, "session": "s"} for i in range(3)]

    assert [a.request.shared_tokens for a in trace.read(rows, file="t")] == [0, 105, 205]
    read = trace.read(list(reversed(MOONCAKE)), file="m")
    assert [a.request.shared_tokens for a in read] == [0, 1024]
    assert read[0].request.session == read[1].request.session


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"at_seconds": 0, "prompt_tokens": -1, "output_tokens": 1}, "no count", id="negative"),
        pytest.param({"at_seconds": 0, "output_tokens": 1}, "prompt_tokens, ContextTokens", id="missing"),
        pytest.param({"at_seconds": "soon", "prompt_tokens": 1, "output_tokens": 1}, "no time", id="time"),
    ],
)
def test_a_bad_row_is_named(row: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        trace.read([row], file="t.csv")  # type: ignore[list-item]
    with pytest.raises(Invalid, match="no rows"):
        trace.read([], file="t.csv")


def test_an_unknown_profile_names_the_nearest() -> None:
    assert profiles.find("coding-agent").name == "agent"
    with pytest.raises(Invalid, match="did you mean 'agent'"):
        profiles.find("agnt")


def test_a_lognormal_from_mean_and_deviation() -> None:
    draw = LogNormal.of(1000, 800)
    rng = Random(1)
    values = [draw(rng) for _ in range(50_000)]

    assert draw.mean == pytest.approx(1000)
    assert sum(values) / len(values) == pytest.approx(1000, rel=0.02)


def test_burstgpt_and_lines_of_a_csv(tmp_path: Path) -> None:
    table = tmp_path / "b.csv"
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    table.write_text(head + "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,230,1317,Conversation log\n")
    found = files.traffic(table)
    assert [(a.at, a.request.prompt_tokens, a.request.output_tokens) for a in found] == [(5, 472, 18), (45, 1087, 230)]

    table.write_text(head + "5,ChatGPT,472,18,490,x\n\n45,ChatGPT,,230,1317,x\n")
    with pytest.raises(Invalid, match=r"b\.csv:4: '' is no count"):
        files.traffic(table)
    lines = tmp_path / "b.jsonl"
    lines.write_text('{"at_seconds":0,"prompt_tokens":1,"output_tokens":1}\n\n{"at_seconds":1}\n')
    with pytest.raises(Invalid, match=r"b\.jsonl:3: 'None' is no count"):
        files.traffic(lines)
