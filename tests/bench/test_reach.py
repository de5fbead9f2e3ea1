"""A mistake is found before the clock runs: who answers, to whom, and how it counts."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stoker.base.errors import Invalid
from stoker.bench.load.target import Target
from stoker.bench.reach import Reached, reach

Answer = tuple[int, str, bytes]
MODELS: Answer = (200, "application/json", b'{"data":[{"id":"small"},{"id":"large"}]}')
LISTED = {"/v1/models": MODELS}


def chat(words_to_tokens: Callable[[int, int], int] | None) -> Callable[[dict], Answer]:
    """Answer in one piece; the usage is reckoned from the messages and words of the request."""

    def answer(asked: dict) -> Answer:
        words = sum(len(message["content"].split()) for message in asked["messages"])
        body: dict[str, object] = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}
        if words_to_tokens is not None:
            prompt = words_to_tokens(len(asked["messages"]), words)
            body["usage"] = {"prompt_tokens": prompt, "completion_tokens": 1}
        return 200, "application/json", json.dumps(body).encode()

    return answer


@pytest.fixture
def served() -> Iterator[Callable[[dict[str, Answer], Callable[[dict], Answer]], str]]:
    """Serve fixed pages, and chat by a function."""
    servers: list[ThreadingHTTPServer] = []

    def serve(pages: dict[str, Answer], talk: Callable[[dict], Answer]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say(pages.get(self.path, (404, "text/plain", b"no such page")))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                self._say(talk(json.loads(body)))

            def _say(self, answer: Answer) -> None:
                self.send_response(answer[0])
                self.send_header("content-type", answer[1])
                self.send_header("content-length", str(len(answer[2])))
                self.end_headers()
                self.wfile.write(answer[2])

            def log_message(self, *_words: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def found(url: str, **more: str) -> Reached:
    return reach(Target(url=url, **{"model": "", **more}), tools=False)


def test_three_questions_tell_what_a_prompt_costs(served: Callable[..., str]) -> None:
    one = found(served(LISTED, chat(lambda messages, words: 10 + 4 * messages + 2 * words)))
    assert one.target.model == "small"
    assert one.costs.request == pytest.approx(10)
    assert one.costs.message == pytest.approx(4)
    assert one.book.words_per_token == pytest.approx(0.5)
    assert one.notes == ()


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ({"/version": (200, "application/json", b'{"version":"0.32.0"}')}, "0.32.0"),
        ({"/props": (200, "application/json", b'{"build_info":"b6500-abc"}')}, "b6500-abc"),
        ({"/version": (200, "text/html", b"<html>")}, ""),
    ],
)
def test_the_engine_tells_its_version(served: Callable[..., str], page: dict[str, Answer], told: str) -> None:
    server = found(served(LISTED | page, chat(None))).server
    assert server.startswith("BaseHTTP")
    assert told in server


def test_a_server_without_usage_is_noted(served: Callable[..., str]) -> None:
    one = found(served(LISTED, chat(None)), model="large")
    assert one.target.model == "large"
    assert one.book.words_per_token == 1
    assert "reports no prompt tokens" in one.notes[0]


@pytest.mark.parametrize(
    ("pages", "answer", "model", "says"),
    [
        pytest.param(LISTED, None, "smal", "--model: it serves no 'smal' (did you mean 'small'?)", id="near model"),
        pytest.param(LISTED, None, "gpt", "it serves no 'gpt' (it serves small, large)", id="far model"),
        pytest.param({}, None, "", "--model: it lists no models (name the one to ask)", id="no list"),
        pytest.param(
            {"/v1/models": (401, "application/json", b'{"error":{"message":"who are you?"}}')},
            None,
            "",
            "--key: it answered 401: who are you?",
            id="key for the list",
        ),
        pytest.param(
            LISTED, (403, "application/json", b'{"error":"no"}'), "", "--key: it answered 403: no", id="key for answers"
        ),
        pytest.param(LISTED, (404, "text/plain", b""), "", "--model, --dialect: it answered 404 (is", id="dialect"),
        pytest.param(LISTED, (500, "text/plain", b"oh"), "", "URL: it answered 500: oh", id="broken"),
        pytest.param(LISTED, (200, "text/html", b"<html>"), "", "URL: it does not answer in JSON", id="a web site"),
    ],
)
def test_mistakes_are_told_in_a_line(
    served: Callable[..., str], pages: dict[str, Answer], answer: Answer | None, model: str, says: str
) -> None:
    url = served(pages, chat(None) if answer is None else lambda _asked: answer)
    with pytest.raises(Invalid) as caught:
        found(url, model=model)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nobody_there() -> None:
    with pytest.raises(Invalid, match=r"URL: GET http://127.0.0.1:1/v1/models.*is the address right"):
        found("http://127.0.0.1:1")
