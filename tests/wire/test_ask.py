"""What real clients ask, said in another dialect; and what cannot be said."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.wire.pair import DIALECTS

from stoker.base.errors import Invalid
from stoker.wire.pairs import Pair, prepare, read

CAPTURES = sorted((Path(__file__).parents[1] / "data" / "captures").glob("*.jsonl"))
DIALECT = {"/v1/messages": "messages", "/v1/responses": "responses", "/v1/chat/completions": "chat"}
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def ask(
    client: str, upstream: str, body: dict[str, Any], engine: str = "vllm", *, stream: bool = True, cap: int = 4096
) -> tuple[dict[str, Any], tuple[str, ...]]:
    data = msgspec.json.encode(body)
    pair = Pair(client=client, upstream=upstream, engine=engine)
    change = prepare(data, read(client, data), pair=pair, cap=cap, model="real", stream=stream)
    return msgspec.json.decode(change.body), change.splices


def tool_of(seen: dict[str, Any], dialect: str) -> dict[str, Any]:
    """Write a captured tool, of which only the shape is known."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in seen["param_names"]}}
    if dialect == "messages":
        return {"name": seen["name"], "description": "d", "input_schema": schema, **(seen["extra"] or {})}
    inside = {"name": seen["name"], "description": "d", "parameters": schema}
    if dialect == "chat":
        return {"type": "function", "function": inside}
    if seen["type"] == "namespace":
        inner = [{"type": "function", **inside, "name": f"do_{n}"} for n in range(seen["n_subtools"])]
        return {"type": "namespace", "name": seen["name"], "description": "d", "tools": inner}
    return {"type": seen["type"], **(inside if seen["type"] == "function" else {}), **(seen["extra"] or {})}


def captured() -> list[Any]:
    found = []
    for file in CAPTURES:
        for number, line in enumerate(file.read_text().splitlines()):
            # The shapes were made anonymous by patterns, which took the second half of this word for an id.
            shape = msgspec.json.decode(line.replace("function_call_<id>", "function_call_output"))
            dialect = DIALECT.get(shape["path"].partition("?")[0])
            if dialect is None or ("messages" not in shape.get("body", {}) and "input" not in shape.get("body", {})):
                continue
            body = dict(shape["body"])
            if shape.get("tools"):
                body["tools"] = [tool_of(tool, dialect) for tool in shape["tools"]]
            found.append(pytest.param(dialect, body, id=f"{file.stem}-{number}"))
    return found


def check_chat(out: dict[str, Any]) -> None:
    """See that a chat request is what engines and their templates take."""
    open_calls: set[str] = set()
    for message in out["messages"]:
        assert message["role"] in ("system", "user", "assistant", "tool")
        if message["role"] == "tool":
            assert message["tool_call_id"] in open_calls
            open_calls.discard(message["tool_call_id"])
        else:
            assert not open_calls
        for call in message.get("tool_calls", ()):
            msgspec.json.decode(call["function"]["arguments"])
            open_calls.add(call["id"])
        assert "cache_control" not in msgspec.json.encode(message).decode()
    assert all(tool["type"] == "function" and tool["function"]["parameters"] for tool in out.get("tools", ()))
    assert out["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize(("client", "body"), captured())
def test_what_real_clients_send(client: str, body: dict[str, Any], upstream: str) -> None:
    out, words = ask(client, upstream, body)

    assert (out["model"], out["stream"]) == ("real", True)
    limit = out["max_output_tokens" if upstream == "responses" else "max_tokens"]
    assert limit == min(body.get("max_tokens", 4096), 4096)
    if client == upstream:
        changed = ("model", "max_tokens", "stream", "stream_options")
        assert {name: out[name] for name in body if name not in changed} == {
            name: body[name] for name in body if name not in changed
        }
        return
    assert words[0] == f"{client}>{upstream}"
    texts = msgspec.json.encode(out["input" if upstream == "responses" else "messages"]).decode()
    assert "say hi" in texts or "run echo" in texts or '"hi"' in texts or "chars>" in texts
    if upstream == "chat":
        check_chat(out)
    if "tool-ran-ok" in str(body):
        assert "tool-ran-ok" in texts


def test_claude_code_keeps_order_reasoning_and_system_in_the_middle() -> None:
    body = next(p.values[1] for p in captured() if p.id == "claude-code-2.1.332-2")
    out, words = ask("messages", "chat", body)

    assert [message["role"] for message in out["messages"]] == ["system", "user", "system", "assistant", "tool"]
    assert out["messages"][3]["reasoning_content"] == "let me think"
    assert out["messages"][3]["content"] == "hello from fake"
    names = [tool["function"]["name"] for tool in out["tools"]]
    assert "Bash" in names
    assert "DeferredToolPlaceholder" not in names
    assert out["reasoning_effort"] == "high"
    assert set(words[1:]) >= {"-tools.DeferredToolPlaceholder", "-context_management", "-metadata"}
    assert "reasoning_content" not in ask("messages", "chat", body, engine="")[0]["messages"][3]
    assert "-content.thinking" in ask("messages", "chat", body, engine="")[1]


def test_codex_gets_flat_names_and_loses_only_what_nobody_runs() -> None:
    body = next(p.values[1] for p in captured() if p.id == "codex-0.171.0-2")
    out, words = ask("responses", "chat", body)

    names = [tool["function"]["name"] for tool in out["tools"]]
    assert "exec_command" in names
    assert "multi_agent_v1__do_0" in names
    assert "-tools.web_search" in words
    assert [message["role"] for message in out["messages"]] == ["system", "system", "user", "user", "assistant", "tool"]
    assert out["messages"][4]["tool_calls"][0]["function"]["name"] == "exec_command"


def test_sessions_are_found_in_bodies() -> None:
    for stem, number in (("claude-code-2.1.332", 0), ("codex-0.171.0", 0)):
        client, body = next(p.values for p in captured() if p.id == f"{stem}-{number}")
        asked = read(str(client), msgspec.json.encode(body))
        assert asked.session_key == "<uuid>"
        assert asked.wants_tools
        assert asked.text.count(b"chars>") >= 2
        assert asked.turns.startswith(b"[")
    old = {"model": "m", "metadata": {"user_id": "user_1_account__session_abc"}}
    assert read("messages", msgspec.json.encode(old)).session_key == "abc"
    assert read("messages", b'{"model":"m","metadata":{"user_id":"ann"}}').session_key is None
    assert read("embeddings", b'{"model":"m","input":["x"]}').turns == b""


SAY: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}


def turn(*blocks: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {**SAY, "messages": [{"role": role, "content": list(blocks)}]}


def source(kind: str, **fields: str) -> dict[str, Any]:
    return {"type": kind, **fields}


@pytest.mark.parametrize(
    ("blocks", "want"),
    [
        pytest.param([{"type": "text", "text": ""}, {"type": "text", "text": "a"}], ["user:a"], id="empty text"),
        pytest.param(
            [{"type": "text", "text": "a"}, {"type": "tool_result", "tool_use_id": "t", "content": "r"}],
            ["tool:r", "user:a"],
            id="results come first",
        ),
        pytest.param(
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "is_error": True,
                    "content": [{"type": "text", "text": "no"}],
                }
            ],
            ["tool:Error: no"],
            id="a failed call says so",
        ),
        pytest.param(
            [{"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "Error: no"}],
            ["tool:Error: no"],
            id="but not twice",
        ),
        pytest.param([{"type": "tool_result", "tool_use_id": "t"}], ["tool:"], id="an empty result"),
        pytest.param(
            [{"type": "document", "title": "T", "source": source("text", media_type="text/plain", data="d")}],
            ["user:T\nd"],
            id="a document of text",
        ),
        pytest.param(
            [{"type": "document", "source": source("base64", media_type="text/plain", data="aMOk")}],
            ["user:h\u00e4"],
            id="a document of text in base64",
        ),
        pytest.param(
            [{"type": "search_result", "title": "T", "source": "s", "content": [{"type": "text", "text": "x"}]}],
            ["user:T s\nx"],
            id="a search result",
        ),
    ],
)
def test_blocks_of_a_user(blocks: list[dict[str, Any]], want: list[str]) -> None:
    out, _ = ask("messages", "chat", turn(*blocks))
    assert [f"{message['role']}:{message['content']}" for message in out["messages"]] == want


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_images_also_in_results(client: str) -> None:
    if client == "messages":
        image = {"type": "image", "source": source("base64", media_type="image/png", data="iVBORw0KGgo=")}
        body = turn({"type": "tool_result", "tool_use_id": "t", "content": [image]}, image)
    else:
        part = {"type": "input_image", "image_url": PICTURE}
        body = {"model": "m", "input": [{"type": "function_call_output", "call_id": "t", "output": [part]}]}
        body["input"].append({"role": "user", "content": [part]})
    out, _ = ask(client, "chat", body)

    assert out["messages"][0] == {"role": "tool", "tool_call_id": "t", "content": "(see the image below)"}
    shown = [part for message in out["messages"][1:] for part in message["content"]]
    assert [part["image_url"]["url"] for part in shown] == [PICTURE, PICTURE]
    back, _ = ask("chat", "messages", {"model": "m", "max_tokens": 1, "messages": out["messages"]})
    assert back["messages"][0]["content"][0]["type"] == "tool_result"
    assert back["messages"][0]["content"][-1]["source"] == source("base64", media_type="image/png", data="iVBORw0KGgo=")


@pytest.mark.parametrize(
    ("engine", "thinking", "want"),
    [
        ("vllm", {"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"enable_thinking": False}}),
        (
            "llama.cpp",
            {"thinking": {"type": "enabled", "budget_tokens": 1}, "output_config": {"effort": "max"}},
            {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "high"},
        ),
        ("vllm", {"thinking": {"type": "adaptive"}}, {}),
        ("", {"thinking": {"type": "enabled", "budget_tokens": 1}, "output_config": {"effort": "low"}}, {}),
    ],
)
def test_the_switch_of_an_engine(engine: str, thinking: dict[str, Any], want: dict[str, Any]) -> None:
    out, words = ask("messages", "chat", {**SAY, **thinking}, engine=engine)
    found = {name: out[name] for name in ("chat_template_kwargs", "reasoning_effort") if name in out}
    assert found == want
    assert ("-thinking" in words) == (engine == "")


TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("choice", "want"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any", "disable_parallel_tool_use": True}, {"tool_choice": "required", "parallel_tool_calls": False}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ],
)
def test_tool_choice_there_and_back(choice: dict[str, Any], want: dict[str, Any]) -> None:
    body = {**SAY, "tools": [TOOL], "tool_choice": choice}
    out, _ = ask("messages", "chat", body)
    assert {name: out[name] for name in ("tool_choice", "parallel_tool_calls") if name in out} == want
    back, _ = ask("chat", "messages", out)
    assert (back["tools"], back["tool_choice"]) == ([TOOL], choice)


def test_structured_output_and_stops_there_and_back() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = {**SAY, "output_config": {"format": {"type": "json_schema", "schema": schema}}, "stop_sequences": ["END"]}
    out, _ = ask("messages", "chat", body)
    assert out["response_format"]["json_schema"]["schema"] == schema
    assert out["stop"] == ["END"]
    back, _ = ask("chat", "messages", out)
    assert (back["output_config"], back["stop_sequences"]) == (body["output_config"], ["END"])

    shape = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    out, _ = ask("responses", "chat", {"model": "m", "input": "hi", "text": {"format": shape}, "top_logprobs": 2})
    assert out["response_format"]["json_schema"] == {"name": "n", "schema": schema, "strict": True}
    assert (out["logprobs"], out["top_logprobs"]) == (True, 2)
    back, _ = ask("chat", "responses", out)
    assert (back["text"]["format"], back["top_logprobs"], back["store"]) == (shape, 2, False)


def test_items_that_belong_to_one_turn_become_one_message() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "reasoning", "id": "r2", "summary": [], "encrypted_content": "xxx"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I go"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "namespace": "ns", "arguments": ""},
        {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "raw"},
        {"type": "web_search_call", "id": "w"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "B"}]},
        {"role": "developer", "content": "be brief"},
    ]
    out, words = ask("responses", "chat", {"model": "m", "instructions": "sys", "input": items})

    roles = [message["role"] for message in out["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "system"]
    said = out["messages"][2]
    assert (said["content"], said["reasoning_content"]) == ("I go", "hm")
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["ns__f", "g"]
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ["{}", '{"input":"raw"}']
    assert set(words[1:]) == {"-input.encrypted_content", "-input.web_search_call"}


def test_deferred_tools_come_once_they_were_found() -> None:
    late = {**TOOL, "name": "late", "defer_loading": True}
    body = {**SAY, "tools": [TOOL, late]}
    assert len(ask("messages", "chat", body)[0]["tools"]) == 1
    found = {"type": "tool_reference", "tool_name": "late"}
    body["messages"] = [
        *SAY["messages"],
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [found]}]},
    ]
    out, _ = ask("messages", "chat", body)
    assert [tool["function"]["name"] for tool in out["tools"]] == ["f", "late"]


def test_allowed_tools_and_effort_of_a_responses_request() -> None:
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("f", "g")]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    body = {"model": "m", "input": "hi", "tools": tools, "tool_choice": choice, "reasoning": {"effort": "none"}}
    out, _ = ask("responses", "chat", body)

    assert [tool["function"]["name"] for tool in out["tools"]] == ["g"]
    assert (out["tool_choice"], out["chat_template_kwargs"]) == ("required", {"enable_thinking": False})


def test_parallel_results_are_one_turn_for_messages() -> None:
    calls = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": a}} for i, a in (("a", "{}"), ("b", "{"))
    ]
    chat = {
        "model": "m",
        "max_completion_tokens": 7,
        "messages": [
            {"role": "developer", "content": "sys"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "A"},
            {"role": "tool", "tool_call_id": "b", "content": "B"},
        ],
        "reasoning_effort": "none",
        "response_format": {"type": "json_object"},
        "user": "u",
        "tools": None,
        "seed": 1,
    }
    out, words = ask("chat", "messages", chat)

    assert out["system"] == [{"type": "text", "text": "sys"}]
    assert [message["role"] for message in out["messages"]] == ["user", "assistant", "user"]
    assert [block["tool_use_id"] for block in out["messages"][2]["content"]] == ["a", "b"]
    assert out["messages"][1]["content"][1]["input"] == {"unparsed_arguments": "{"}
    assert (out["max_tokens"], out["thinking"], out["metadata"]) == (7, {"type": "disabled"}, {"user_id": "u"})
    assert words == ("chat>messages", "-seed")


@pytest.mark.parametrize(
    ("client", "upstream", "body", "message"),
    [
        ("responses", "chat", {"input": "x", "previous_response_id": "r"}, "previous_response_id: no answers are kept"),
        ("responses", "chat", {"input": "x", "background": True}, "background"),
        ("responses", "chat", {"input": [{"type": "item_reference", "id": "i"}]}, r"input\[0\].type.*item_reference"),
        ("responses", "chat", {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, r"input\[0\]"),
        ("responses", "chat", {"input": "x", "tool_choice": {"type": "mcp"}}, "tool_choice"),
        ("responses", "chat", {"input": 5}, "input: a list"),
        ("responses", "chat", {}, "input: at least one"),
        ("messages", "chat", {"messages": []}, "messages: at least one"),
        ("messages", "chat", {**SAY, "mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ("messages", "chat", {**SAY, "tools": [{"type": "custom"}]}, r"tools\[0\].name"),
        ("messages", "chat", {**SAY, "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice.name"),
        ("messages", "chat", {**SAY, "max_tokens": "9"}, "max_tokens"),
        ("messages", "chat", turn({"type": "video"}), r"messages\[0\].content\[0\].*video"),
        (
            "messages",
            "chat",
            turn({"type": "document", "source": source("base64", media_type="application/pdf", data="x")}),
            "application/pdf",
        ),
        ("messages", "chat", turn({"type": "tool_use", "name": "f"}, role="assistant"), "id and a name"),
        ("messages", "responses", {**SAY, "stop_sequences": ["x"]}, "stop"),
        ("chat", "messages", {**SAY, "n": 2}, "n: "),
        ("chat", "messages", {**SAY, "logprobs": True}, "logprobs"),
        ("chat", "messages", turn({"type": "input_audio"}), "input_audio"),
        ("chat", "messages", {**SAY, "tool_choice": "any"}, "tool_choice"),
        ("chat", "responses", {**SAY, "stop": "x"}, "stop"),
        ("chat", "responses", {**SAY, "messages": [{"role": "x"}]}, r"messages\[0\].role"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(client: str, upstream: str, body: dict[str, Any], message: str) -> None:
    body = {"model": "m", **body}
    if body.get("tool_choice") == "any":
        body["tools"] = [{"type": "function", "function": {"name": "f"}}]
    with pytest.raises(Invalid, match=message):
        ask(client, upstream, body)


def test_null_is_absent_and_a_limit_is_always_there() -> None:
    body = {
        **SAY,
        "max_tokens": 9,
        "tools": None,
        "tool_choice": None,
        "metadata": None,
        "system": None,
        "thinking": None,
    }
    out, words = ask("messages", "chat", body, stream=False)
    assert set(out) == {"messages", "max_tokens", "model"}
    assert words == ("messages>chat",)
    assert ask("responses", "chat", {"model": "m", "input": "x"}, cap=5)[0]["max_tokens"] == 5


def test_a_begun_answer_is_continued() -> None:
    body = {**SAY, "messages": [*SAY["messages"], {"role": "assistant", "content": "The answer is"}]}
    out, _ = ask("messages", "chat", body)
    assert (out["continue_final_message"], out["add_generation_prompt"]) == (True, False)
    assert "continue_final_message" not in ask("messages", "chat", body, engine="llama.cpp")[0]  # it does so anyway
