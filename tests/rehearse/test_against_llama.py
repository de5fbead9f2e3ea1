"""The same traffic to the real llama.cpp and to the simulated engine: the same starts, the same cached tokens."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator

import pytest
from tests.engines.test_llama_cpp_real import KEY, Served
from tests.models.tiny import make

from stoker.predict.batching.hashed import HashedBlocks
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Job, Request
from stoker.rehearse.batch import rig as rigs
from stoker.rehearse.batch.prefix import hashes
from stoker.rehearse.batch.rig import Linear, Rig
from stoker.spec.deployment import EngineBlock

pytestmark = pytest.mark.e2e
SLOTS = 2
MADE = 4  # tokens of each answer
RIG = Rig(
    linear=Linear(base_seconds=0.01, per_prefill_token_seconds=0.001),
    sequences=SLOTS,
    block_tokens=1,
    kv_cache_tokens=1024,
)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("llama")
    block = EngineBlock(name="llama.cpp", context_tokens=512, max_sequences=SLOTS)
    served = Served(folder, make(folder).gguf, block)
    try:
        served.wait()
        yield served
    finally:
        served.process.terminate()
        served.process.wait(10)


def complete(llama: Served, prompt: list[int], tokens: int = MADE) -> dict:
    asked = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "cache_prompt": True, "temperature": 0}
    status, body = llama.get("/completion", body={**asked, "return_tokens": True})
    assert status == 200, body
    return json.loads(body)


class Ours:
    """The machine with its cache, moved by hand."""

    def __init__(self) -> None:
        self.machine = Machine(RIG.limits, rigs.step_time(RIG), HashedBlocks(RIG.limits))
        self.now = 0.0

    def submit(self, prompt: list[int], answer: list[int]) -> Job:
        known = hashes([str(token) for token in (*prompt, *answer)], RIG.block_tokens)
        job = self.machine.submit(Request(len(prompt), len(answer), hashes=known), self.now)
        assert job is not None
        return job

    def finish(self) -> None:
        while (step := self.machine.step(self.now, most=1)) is not None:
            self.now += step.seconds


def test_the_same_tokens_are_found_in_the_cache(llama: Served) -> None:
    """Two sessions in turn: each prompt goes on from the one before and its answer; one is asked twice, one changed."""
    ours, real, simulated = Ours(), [], []
    prompts = {1: list(range(20, 60)), 2: list(range(260, 300))}
    for turn in range(5):
        for session, prompt in prompts.items():
            answer = complete(llama, prompt)
            real.append(answer["timings"]["cache_n"])
            job = ours.submit(prompt, answer["tokens"])
            ours.finish()
            simulated.append(job.hit_tokens)
            if turn == 1 and session == 1:
                continue  # the same once more
            prompt.extend((*answer["tokens"], *range(100 * session, 100 * session + 20)))
            if turn == 2 and session == 2:
                prompt[50] += 1  # the history was edited: nothing behind this is found
    assert real == simulated
    assert real[:2] == [0, 0]
    assert real[2] == 43  # 40 of the prompt and 3 of 4 of the answer: the last token is said, and never read
    assert 50 in real


def first_token(llama: Served, prompt: list[int], tokens: int) -> Iterator[None]:
    """Ask for a stream, wait for its first event, and leave the rest to be read until the end."""
    connection = http.client.HTTPConnection("127.0.0.1", llama.port, timeout=60)
    asked = {"prompt": prompt, "n_predict": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    connection.request(
        "POST", "/completion", json.dumps(asked), {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    )
    with contextlib.closing(connection):
        answer = connection.getresponse()
        assert answer.status == 200
        while not answer.readline().startswith(b"data: "):
            pass
        yield
        answer.read()


def test_requests_begin_in_the_order_in_which_they_came(llama: Served) -> None:
    """Six at once on two slots, the first ones long: the others wait, and nobody overtakes."""
    lengths = [120, 160, 8, 24, 16, 8]
    prompts = [[300 + 10 * i + j for j in range(10)] for i in range(6)]
    begun: list[int] = []

    def one(number: int) -> None:
        for _ in first_token(llama, prompts[number], lengths[number]):
            begun.append(number)  # noqa: PERF401 -- it is told while the answer is under way

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
        threading.Event().wait(0.02)  # they come one after the other
    for thread in threads:
        thread.join()

    ours = Ours()
    jobs = [ours.submit(prompt, [0] * length) for prompt, length in zip(prompts, lengths, strict=True)]
    order: list[int] = []
    while (step := ours.machine.step(ours.now, most=1)) is not None:
        ours.now += step.seconds
        order += [jobs.index(job) for job in step.first]
    assert begun == order == list(range(6))
