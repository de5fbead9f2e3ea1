"""May everybody use this model for everything? Permissive, restricted with its clause, or unknown.

1. Only a licence that we know is permissive passes without a question.
2. A known one with a condition is restricted, and the clause that a person must look at is named.
3. Everything else, also "other" and nothing at all, is unknown: silence is not a permission.

This sorts; it is no legal advice. The text that came with the model is what counts.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """What the sorting says. The words are stable: conditions and events carry them."""

    PERMISSIVE = "permissive"
    RESTRICTED = "restricted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """One reading: ``title`` as the model names it, ``clause`` what a person has to look at."""

    kind: Kind
    title: str
    clause: str = ""

    @property
    def standing(self) -> str:
        """The kind as conditions write it."""
        return str(self.kind)


_PERMISSIVE: Final = frozenset({
    "0bsd", "afl-3.0", "apache-2.0", "artistic-2.0", "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear",
    "bsl-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc0-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "isc",
    "mit", "ms-pl", "ncsa", "pddl", "postgresql", "unlicense", "wtfpl", "zlib",
})  # fmt: skip
_ALIASES: Final = {
    "apache 2.0": "apache-2.0",
    "apache license 2.0": "apache-2.0",
    "apache license, version 2.0": "apache-2.0",
    "apache-2": "apache-2.0",
    "apache2.0": "apache-2.0",
    "mit license": "mit",
    "the mit license": "mit",
    "cc0": "cc0-1.0",
}
_LLAMA: Final = "an own licence for those with over 700 million monthly users, a use policy, and naming duties"
_NON_COMMERCIAL: Final = "no commercial use"
_RAIL: Final = "a list of forbidden uses that must be handed on with the model"
_COPYLEFT: Final = "what is derived from it must be under the same licence"

# The first pattern that matches the whole normalised name decides.
_RESTRICTED: Final = (
    (r"llama-?[2-9].*", _LLAMA),
    (r"gemma.*", "a policy of forbidden uses that must be handed on, and the right to restrict use remotely"),
    (r"cc-by-nc.*", _NON_COMMERCIAL),
    (
        r"(?:mistral-)?(?:mrl|mnpl|mistral-ai-research|research)(?:-.*)?",
        "research only; production use needs a contract",
    ),
    (r"qwen-research.*", _NON_COMMERCIAL),
    (r"(?:tongyi-)?(?:qwen|qianwen).*", "an own licence for those with over 100 million monthly users"),
    (r"(?:.*-)?(?:open|creativeml-open|bigscience-.*|bigcode-open)?rail(?:-.*|\+\+)?", _RAIL),
    (r".*openrail.*", _RAIL),
    (r"deepseek.*", _RAIL),
    (r"falcon.*", "a use policy, and conditions for hosting it as a service"),
    (r"nvidia-open-model.*", "its safety guardrails must not be removed without a replacement"),
    (r"nvidia.*", _NON_COMMERCIAL),
    (r"(?:cohere|c4ai).*", _NON_COMMERCIAL),
    (r"(?:h-)?stabilityai.*", "a contract for those with over one million US dollars of yearly revenue"),
    (r"(?:a|l)?gpl.*", _COPYLEFT),
    (r"cc-by-sa.*", _COPYLEFT),
    (r"cc-by-nd.*", "no changed version may be handed on"),
    (r"(?:epl|mpl|eupl|osl|lgpl|cecill).*", _COPYLEFT),
)


def read(name: str, *, title: str = "") -> Licence:
    """Sort a licence by the id that a model's files give, or by its title where the id says nothing (``other``)."""
    title = title.strip() if title.strip() and name.strip().lower() in ("", "other") else name.strip()
    key = re.sub(r"[\s_]+", " ", title.lower())
    key = _ALIASES.get(key, key).replace(" ", "-")
    if key in _PERMISSIVE:
        return Licence(kind=Kind.PERMISSIVE, title=key)
    for pattern, clause in _RESTRICTED:
        if re.fullmatch(pattern, key):
            return Licence(kind=Kind.RESTRICTED, title=title, clause=clause)
    if not title:
        return Licence(kind=Kind.UNKNOWN, title="", clause="the files name no licence")
    return Licence(kind=Kind.UNKNOWN, title=title, clause=f"'{title}' is no licence that Stoker knows")
