"""The same traffic to the real llama.cpp and to the simulated engine: the same starts, the same cached tokens."""

import json
import threading
from collections.abc import Iterator

import pytest
from tests.engines.test_llama_cpp_real import Served
from tests.models.tiny import make

from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Job, Request
from stoker.rehearse.batch import rig as rigs
from stoker.rehearse.batch.prefix import Prefixes
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
    """The machine with its prefixes, moved by hand."""

    def __init__(self) -> None:
        self.machine = Machine(RIG.limits, rigs.step_time(RIG))
        self.prefixes = Prefixes(RIG.block_tokens)
        self.now = 0.0

    def submit(self, prompt: list[int], tokens: int = MADE) -> Job:
        found = self.prefixes.take([str(token) for token in prompt])
        job = self.machine.submit(
            Request(
                prompt_tokens=len(prompt),
                output_tokens=tokens,
                session=found.session,
                shared_tokens=found.shared_tokens,
                head=found.head,
                head_tokens=found.head_tokens,
            ),
            self.now,
        )
        assert job is not None
        return job

    def finish(self) -> None:
        while (step := self.machine.step(self.now, most=1)) is not None:
            self.now += step.seconds


def test_the_same_tokens_are_found_in_the_cache(llama: Served) -> None:
    """Two sessions in turn, each prompt going on from the one before."""
    ours, real, simulated = Ours(), [], []
    prompts = {1: list(range(20, 60)), 2: list(range(260, 300))}
    for _turn in range(4):
        for session, prompt in prompts.items():
            answer = complete(llama, prompt)
            real.append(answer["timings"]["cache_n"])
            job = ours.submit(prompt)
            ours.finish()
            simulated.append(job.hit_tokens)
            prompt.extend(range(100 * session, 100 * session + 20))
    assert real[2:] == simulated[2:]
    assert real[2] >= 39
    assert real[-1] > real[2] > 0


def test_requests_begin_in_the_order_in_which_they_came(llama: Served) -> None:
    """Six at once on two slots, the first ones long: the others wait, and nobody overtakes."""
    lengths = [60, 60, 8, 8, 8, 8]
    prompts = [[300 + 10 * i + j for j in range(10)] for i in range(6)]
    ended: list[int] = []
    lock = threading.Lock()

    def one(number: int) -> None:
        complete(llama, prompts[number], lengths[number])
        with lock:
            ended.append(number)

    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=one, args=(number,)))
        threads[-1].start()
        threading.Event().wait(0.01)
    for thread in threads:
        thread.join()

    ours = Ours()
    jobs = [ours.submit(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
    order: list[int] = []
    while (step := ours.machine.step(ours.now, most=1)) is not None:
        ours.now += step.seconds
        order += [jobs.index(job) for job in step.first]
    assert order == sorted(order)  # ours begin in the order in which they came
    assert sorted(ended) == list(range(6))
    late = [number for number in ended if number >= 2]
    assert late == sorted(late)  # and so do theirs: equal ones end in the order of their starts
