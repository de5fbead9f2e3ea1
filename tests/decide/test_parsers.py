"""ParsersVerified: false only where markup was left in the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.json import Json, JsonObject
from stoker.decide.parsers import PROBES, judge
from stoker.engines import vllm

FLAGS = vllm.ENGINE.parser_flags()
ARGS = '{"city": "Oslo"}'


def said(content: str | None = "fine", *, calls: int = 0, arguments: str = ARGS, **more: str) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": content, **more}
    if calls:
        call: JsonObject = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        message["tool_calls"] = [call] * calls
    return {"status": 200, "body": {"choices": [{"message": message}]}}


def refused(status: int, text: str) -> JsonObject:
    return {"status": status, "body": {"error": {"message": text}}}


GOOD = {"tool": said(None, calls=1), "parallel": said(None, calls=2), "reasoning": said(), "system": said()}


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        pytest.param({}, "True", "CallsParsed", id="all parsed"),
        pytest.param({"parallel": said("I cannot")}, "True", "CallsParsed", id="one call at a time"),
        pytest.param({"tool": said(f"<tool_call>{ARGS}</tool_call>")}, "False", "ToolMarkupInText", id="hermes"),
        pytest.param({"tool": said("[TOOL_CALLS][{}]")}, "False", "ToolMarkupInText", id="mistral"),
        pytest.param({"parallel": said("<|python_tag|>x")}, "False", "ToolMarkupInText", id="llama, second probe"),
        pytest.param(
            {"tool": said('{"name": "get_weather", "arguments": {"city": "Oslo"}}')},
            "False",
            "ToolMarkupInText",
            id="bare",
        ),
        pytest.param({"reasoning": said("<think>so</think> 85")}, "False", "ReasoningMarkupInText", id="think"),
        pytest.param({"system": said("so</think> ok")}, "False", "ReasoningMarkupInText", id="closing tag alone"),
        pytest.param({"tool": said("It rains."), "parallel": said("No.")}, "Unknown", "NoCallMade", id="weak model"),
        pytest.param(
            {"tool": said(None, calls=1, arguments='{"city'), "parallel": said()},
            "Unknown",
            "CallsUnreadable",
            id="cut call",
        ),
        pytest.param(
            {"tool": refused(400, "requires --enable-auto-tool-choice"), "parallel": refused(400, "x")},
            "Unknown",
            "ToolsRefused",
            id="tools refused",
        ),
        pytest.param(
            {"tool": {"status": 200, "body": {}}, "parallel": said()}, "Unknown", "ToolsRefused", id="no shape"
        ),
        pytest.param({"system": refused(400, "roles must alternate")}, "True", "CallsParsed", id="system refused"),
    ],
)
def test_verdicts(changed: dict[str, JsonObject], status: str, reason: str) -> None:
    verdict = judge({**GOOD, **changed}, flags=FLAGS)

    assert (verdict.status, verdict.reason) == (status, reason)


def test_the_flag_to_set_is_named() -> None:
    assert judge({"tool": said("<tool_call>")}, flags=FLAGS).action == "set spec.engine.toolParser"
    assert judge({"tool": said("<think>")}, flags=FLAGS).action == "set spec.engine.reasoningParser"


def test_a_template_without_tools_has_no_parser_to_verify_but_raw_thoughts_still_count() -> None:
    verdict = judge({"tool": said("no"), "parallel": said("no")}, flags=FLAGS, template="{{ messages }}")
    assert (verdict.applicable, verdict.reason) == (False, "NotApplicable")

    raw = judge({"reasoning": said("<think>x")}, flags=FLAGS, template="{{ messages }}")
    assert raw.status == "False"


def test_a_system_turn_that_is_refused_is_told() -> None:
    verdict = judge({**GOOD, "system": refused(400, "roles must alternate")}, flags=FLAGS)

    assert "roles must alternate" in verdict.message


def test_the_probes_ask_four_different_things() -> None:
    assert set(PROBES) == {"tool", "parallel", "reasoning", "system"}
    assert [name for name, body in PROBES.items() if "tools" in body] == ["tool", "parallel"]


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "tool_calls", "function", "content", "error"]), inner)
    ),
    max_leaves=12,
)


@given(body=json_values, status=st.sampled_from([200, 400]))
def test_no_answer_breaks_the_judge_and_none_without_markup_is_a_proof(body: Json, status: int) -> None:
    verdict = judge({"tool": {"status": status, "body": body}}, flags=FLAGS)

    assert verdict.status in ("True", "Unknown")
