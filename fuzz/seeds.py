"""Write inputs that are well formed: a fuzzer that begins with nothing needs hours to find its first whole request."""

import json
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
CHAT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":"H\xc3\xa9"},"finish_reason":null}]}\n\n'
    b': ping\n\ndata: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f",'
    b'"arguments":""}}]},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":1}"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":'
    b'{"cached_tokens":3}}}\n\ndata: [DONE]\n\n'
)
MESSAGES = (
    b'event: message_start\r\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant",'
    b'"model":"m","content":[],"usage":{"input_tokens":5,"output_tokens":1}}}\r\n\r\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"thinking",'
    b'"thinking":"","signature":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta",'
    b'"thinking":"hm"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use",'
    b'"id":"t","name":"f","input":{}}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta",'
    b'"partial_json":"{}"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":1}\n\n'
    b'event: ping\ndata: {"type":"ping"}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},'
    b'"usage":{"output_tokens":2}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
)
RESPONSES = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"r","status":'
    b'"in_progress","output":[]}}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","output_index":0,"item":{"id":"i",'
    b'"type":"message","role":"assistant","content":[]}}\n\n'
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i","output_index":0,'
    b'"content_index":0,"delta":"Hi"}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":3,"response":{"id":"r","status":'
    b'"completed","output":[{"id":"i","type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":'
    b'{"input_tokens":5,"output_tokens":2}}}\n\n'
)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
REQUESTS = (
    {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True, "tools": [TOOL]},
    {
        "model": "m",
        "max_tokens": 999,
        "system": [{"type": "text", "text": "It is 2026-11-30", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": '{"session_id":"s"}'},
    },
    {
        "model": "m",
        "instructions": "help",
        "max_output_tokens": None,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "ok"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "web_search"}],
    },
)
HTTP = (
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /a HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\nhiGET / HTTP/1.1\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nt: 1\r\n\r\n",
    b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nhi",
    b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
)
ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nretry-after: 1\r\nconnection: close\r\n\r\nno",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 204 No Content\r\n\r\n",
)


def main() -> None:
    """Write them, each behind the bytes with which its target begins."""
    for kind, texts in (("server", HTTP), ("upstream", ANSWERS)):
        for number, text in enumerate(texts):
            _write(kind, f"seed-{number}", b"\x01\x50" + text)
    for up, text in enumerate((CHAT, MESSAGES, RESPONSES)):
        for client in range(3):
            for how in range(4):
                _write("streams", f"seed-{client}{up}{how}", bytes((client, up, how, 30, 90, 200)) + text)
    for pair in range(9):
        for number, request in enumerate(REQUESTS):
            _write("requests", f"seed-{pair}{number}", bytes((pair,)) + json.dumps(request).encode())


def _write(kind: str, name: str, data: bytes) -> None:
    folder = CORPUS / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
