"""The batching engine behind the script: a request and its answer become work, and whoever is refused is told why."""

from dataclasses import dataclass

from stoker.base.json import JsonObject
from stoker.predict.batching.hashed import HashedBlocks
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Request as Work
from stoker.rehearse.batch.cards import Exporter
from stoker.rehearse.batch.clockwork import Clockwork, Turn
from stoker.rehearse.batch.histogram import Seen
from stoker.rehearse.batch.pages import server_info
from stoker.rehearse.batch.prefix import hashes
from stoker.rehearse.batch.rig import Rig, step_time
from stoker.rehearse.compose import Composition
from stoker.rehearse.dialects.base import Refusal
from stoker.rehearse.request import Request
from stoker.rehearse.said import Text, Thought


@dataclass(frozen=True, slots=True)
class Behind:
    """The machine, what moves it, and what looks at its cards."""

    rig: Rig
    clockwork: Clockwork
    exporter: Exporter

    def submit(self, request: Request, composition: Composition, came: float) -> Turn | Refusal:
        """Put a request into the batch, or say why it is not taken."""
        made = max(1, len(composition.said))
        work = Work(
            prompt_tokens=max(1, request.prompt_tokens),
            output_tokens=made,
            hashes=hashes((*request.words, *_words(composition)), self.rig.block_tokens),
        )
        turn = self.clockwork.submit(work, came)
        return turn if turn is not None else self._refusal(request.prompt_tokens + made)

    def told(self, path: str) -> JsonObject:
        """Tell what the engine tells of itself under this path."""
        return server_info(self.rig) if path == "/server_info" else {"version": self.rig.version}

    def _refusal(self, tokens: int) -> Refusal:
        """It could never end here, or too many wait."""
        rig = self.rig
        most = min(rig.context_tokens or rig.kv_cache_tokens, rig.kv_cache_tokens)
        if tokens > most:
            message = (
                f"This request needs {tokens} tokens with its answer, and {most} are the most that this engine takes."
            )
            return Refusal(status=400, message=message, kind="BadRequestError", param="max_tokens")
        self.clockwork.turned_away += 1
        message = "The engine is currently busy, please retry later."
        return Refusal(status=503, message=message, kind="Service Unavailable")


def behind(rig: Rig, *, speed: float) -> Behind:
    """Build it. Raises Invalid for step times that say too little."""
    machine = Machine(rig.limits, step_time(rig), HashedBlocks(rig.limits))
    clockwork = Clockwork(machine, seen=Seen(sglang=rig.names == "sglang"), speed=speed)
    return Behind(rig, clockwork, Exporter(clockwork, rig))


def _words(composition: Composition) -> tuple[str, ...]:
    """The words of an answer as a later prompt has them; calls come back in another form, and end what is shared."""
    found = []
    for piece in composition.said:
        if not isinstance(piece, Text | Thought):
            break
        found.append(piece.text)
    return tuple(found)
