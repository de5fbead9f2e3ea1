"""Surfaces that answer at once and generate nothing: embeddings, rerank, counting tokens."""

import re
from typing import Final

from stoker.base.json import Json, JsonObject
from stoker.rehearse.request import Request, tokens_of

_WORDS: Final = re.compile(r"\w+")


def single(request: Request, *, model: str, context_tokens: int) -> JsonObject | None:
    """Write the answer of such a surface; None for one that generates."""
    match request.dialect:
        case "embeddings":
            return _embeddings(request, model)
        case "rerank":
            return _rerank(request, model)
        case "count_tokens":
            return {"input_tokens": request.prompt_tokens}
        case "tokenize":
            return _tokenize(request, context_tokens)
        case _:
            return None


def _embeddings(request: Request, name: str) -> JsonObject:
    """Vectors that depend on nothing but their place: enough to see that they arrive."""
    vectors: list[Json] = [
        {"object": "embedding", "index": index, "embedding": [1.0 / (index + place + 1) for place in range(8)]}
        for index in range(request.inputs)
    ]
    usage: JsonObject = {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens}
    return {"object": "list", "data": vectors, "model": name, "usage": usage}


def _rerank(request: Request, name: str) -> JsonObject:
    """Score each document by the share of the query's words that it has."""
    wanted = _bag(request.query)
    scored = [(len(wanted & _bag(text)) / max(len(wanted), 1), index) for index, text in enumerate(request.texts)]
    results: list[Json] = [
        {"index": index, "document": {"text": request.texts[index]}, "relevance_score": score}
        for score, index in sorted(scored, key=lambda one: (-one[0], one[1]))
    ]
    usage: JsonObject = {"prompt_tokens": request.prompt_tokens, "total_tokens": request.prompt_tokens}
    return {"id": f"score-{request.number}", "model": name, "usage": usage, "results": results}


def _bag(text: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(text)}


def _tokenize(request: Request, context_tokens: int) -> JsonObject:
    """Number the tokens: as llama.cpp when it was asked in its way, else as vLLM."""
    ids: list[Json] = list(range(request.prompt_tokens or len(tokens_of(request.query))))
    if request.content:
        return {"tokens": ids}
    return {"count": len(ids), "max_model_len": context_tokens, "tokens": ids, "token_strs": None}
