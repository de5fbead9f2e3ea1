"""Settings of clients, and how they get into files that are somebody else's."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.base.json import Json, JsonObject
from stoker.checks.clients.base import Service, Setup
from stoker.checks.clients.known import CLIENTS, known
from stoker.checks.clients.merge import deep, merged

SERVICE = Service(
    origin="http://127.0.0.1:8080",
    model="coder",
    auxiliary="small",
    key="sk-1",
    context_tokens=65_536,
    output_tokens=8192,
    first_byte_seconds=900,
)
NO_KEY = Service(origin="http://127.0.0.1:8080", model="coder")


def test_claude_code_is_told_what_it_would_guess() -> None:
    setup = known("claude-code").setup(SERVICE)
    env = setup.settings["env"]

    assert isinstance(env, dict)
    assert env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8080"
    assert env["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "small"
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "65536"
    assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "8192"
    assert env["API_TIMEOUT_MS"] == "960000"
    assert env["ANTHROPIC_AUTH_TOKEN"] == "sk-1"
    assert setup.secret


def test_codex_never_waits_shorter_than_the_gateway_thinks() -> None:
    written = tomllib.loads(merged(known("codex").setup(SERVICE), "", file="config.toml"))

    assert written["model_provider"] == "stoker"
    assert written["model_context_window"] == 65_536
    provider = written["model_providers"]["stoker"]
    assert provider["stream_idle_timeout_ms"] == 960_000
    assert (provider["wire_api"], provider["env_key"]) == ("responses", "STOKER_API_KEY")
    assert "sk-1" not in merged(known("codex").setup(SERVICE), "", file="config.toml")


def test_opencode_has_both_models_with_their_limits() -> None:
    written = json.loads(merged(known("opencode").setup(SERVICE), "", file="opencode.json"))

    assert (written["model"], written["small_model"]) == ("stoker/coder", "stoker/small")
    models = written["provider"]["stoker"]["models"]
    assert list(models) == ["coder", "small"]
    assert all(model["limit"] == {"context": 65_536, "output": 8192} for model in models.values())


@pytest.mark.parametrize("name", list(CLIENTS))
def test_without_a_key_none_is_written_and_the_way_to_it_is_told(name: str) -> None:
    setup = known(name).setup(NO_KEY)
    text = merged(setup, "", file="x")

    assert not setup.secret
    assert "YOUR_KEY" not in text
    assert any("STOKER_API_KEY" in part for part in (text, *setup.notes)) or "_API_KEY" in "".join(setup.env)


def test_a_context_that_cannot_hold_the_clients_own_prompt_is_told() -> None:
    small = Service(origin="http://h", model="m", context_tokens=16_384, output_tokens=4096)

    assert "too small" in known("claude-code").setup(small).notes[0]
    assert not any("too small" in note for note in known("opencode").setup(small).notes)


def test_an_unknown_client_is_told_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean 'codex'"):
        known("codx")


JSON_FILE = '{"permissions": {"allow": ["Bash"]}, "env": {"ANTHROPIC_MODEL": "old", "EDITOR": "vi"}}'


def test_json_keeps_what_was_there() -> None:
    written = json.loads(merged(known("claude-code").setup(SERVICE), JSON_FILE, file="settings.json"))

    assert written["permissions"] == {"allow": ["Bash"]}
    assert written["env"]["EDITOR"] == "vi"
    assert written["env"]["ANTHROPIC_MODEL"] == "coder"


@pytest.mark.parametrize("text", ['{"a": 1, // a comment\n}', "[1]", "{"])
def test_json_that_cannot_be_kept_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="nothing was written"):
        merged(known("opencode").setup(SERVICE), text, file="opencode.json")


TOML_FILE = """# my settings
model = "gpt"   # the big one
approval_policy = "never"

[model_providers.stoker] # old
base_url = "http://old"
query_params = { a = "b" }
env_key_instructions = "ask Ann"

[mcp_servers.docs]
command = "npx"

[profiles.fast]
model = "other"
"""


def test_toml_keeps_comments_and_other_tables() -> None:
    text = merged(known("codex").setup(SERVICE), TOML_FILE, file="config.toml")
    written = tomllib.loads(text)

    assert text.startswith("# my settings\n")
    assert written["approval_policy"] == "never"
    assert written["mcp_servers"] == {"docs": {"command": "npx"}}
    assert written["profiles"] == {"fast": {"model": "other"}}
    assert written["model"] == "coder"
    provider = written["model_providers"]["stoker"]
    assert provider["base_url"] == "http://127.0.0.1:8080/v1"
    assert provider["env_key_instructions"] == "ask Ann"


@pytest.mark.parametrize(
    "text",
    ["model_providers = { stoker = { name = 'x' } }\n", 'model = """\na\n"""\n', "model = [\n1]\n", "= 1"],
    ids=["inline table", "text over lines", "list over lines", "no TOML"],
)
def test_toml_that_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="nothing was written"):
        merged(known("codex").setup(SERVICE), text, file="config.toml")


@pytest.mark.parametrize("name", list(CLIENTS))
@pytest.mark.parametrize("before", ["", "kept"])
def test_writing_twice_changes_nothing(name: str, before: str) -> None:
    setup = known(name).setup(SERVICE)
    there = {"json": JSON_FILE, "toml": TOML_FILE, "env": "# mine\nexport OPENAI_API_KEY=x\nA=1"}[setup.form]
    once = merged(setup, there if before else "", file="x")

    assert merged(setup, once, file="x") == once


def test_an_env_file_keeps_its_lines() -> None:
    text = merged(known("openai").setup(SERVICE), "A=1\nexport OPENAI_API_KEY=old\n", file=".env")

    assert text == "A=1\nOPENAI_API_KEY=sk-1\nOPENAI_BASE_URL=http://127.0.0.1:8080/v1\n"


_names = st.text("abcxyz_", min_size=1, max_size=4)
_plain = st.one_of(st.integers(-9, 9), st.booleans(), st.text("ab\"\\é'#[]\n", max_size=6))
_objects = st.dictionaries(_names, st.one_of(_plain, st.dictionaries(_names, _plain, max_size=3)), max_size=4)


@given(before=_objects, ours=_objects)
def test_ours_win_and_the_rest_stays(before: JsonObject, ours: JsonObject) -> None:
    result = deep(before, ours)

    assert deep(result, ours) == result
    assert all(result[name] == value for name, value in before.items() if name not in ours)
    assert all(result[name] == value for name, value in ours.items() if not isinstance(value, dict))


@given(before=_objects, ours=_objects)
def test_toml_is_right_or_refused(before: JsonObject, ours: JsonObject) -> None:
    text = "\n".join(_toml_lines(before))
    setup = Setup(client="c", file="f", form="toml", settings=ours)
    try:
        written = merged(setup, text, file="f")
    except Invalid:
        return

    assert tomllib.loads(written) == deep(before, ours)


def _toml_lines(value: JsonObject) -> list[str]:
    plain = [f"{name} = {_toml_value(v)}" for name, v in value.items() if not isinstance(v, dict)]
    for name, inner in value.items():
        if isinstance(inner, dict):
            plain += [f"[{name}]", *_toml_lines(inner)]
    return plain


def _toml_value(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
