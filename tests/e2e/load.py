"""Load from the real openai client: streams in threads until told to stop; every failure is kept."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import openai


@dataclass
class Load:
    """What the clients saw."""

    answers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def one(self, client: openai.OpenAI, model: str) -> None:
        """Ask again and again. An answer without a finish reason is a failure, as is any exception."""
        while not self.stop.is_set():
            try:
                pieces = list(
                    client.chat.completions.create(
                        model=model,
                        messages=[{"role": "user", "content": "Tell."}],
                        max_tokens=24,
                        temperature=0,
                        stream=True,
                    )
                )
                finish = [c.choices[0].finish_reason for c in pieces if c.choices][-1]
                text = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
                (self.answers if finish else self.failures).append(text)
            except (openai.OpenAIError, IndexError) as error:
                self.failures.append(repr(error))


@contextlib.contextmanager
def under_load(url: str, key: str, model: str, *, clients: int = 3) -> Iterator[Load]:
    """Keep clients asking while the body runs; no retries, so that nothing is hidden."""
    load = Load()
    threads = [
        threading.Thread(
            target=load.one, args=(openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=60), model)
        )
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(timeout=60)
