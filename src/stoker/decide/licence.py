"""May this model be served without asking anybody: is its licence permissive, restricted or unknown?

Read from what the files themselves declare. A licence that restricts use, users or revenue is *restricted*, and the
clause says how; what is not in the table is *unknown*, never silently allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """A licence as it was declared, its standing, and the clause that restricts it."""

    name: str
    standing: str  # permissive | restricted | unknown
    clause: str = ""


_PERMISSIVE: Final = frozenset(
    {
        "apache-2.0",
        "mit",
        "bsd-2-clause",
        "bsd-3-clause",
        "bsd",
        "isc",
        "unlicense",
        "cc0-1.0",
        "cc-by-4.0",
        "cc-by-3.0",
        "cdla-permissive-2.0",
        "wtfpl",
        "zlib",
        "bsl-1.0",
    }
)
_RESTRICTED: Final[Mapping[str, str]] = {
    "llama2": "more than 700 million monthly users need a licence of their own; outputs must not train other models",
    "llama3": "more than 700 million monthly users need a licence of their own; derived models carry 'Llama 3' in the name",
    "llama3.1": "more than 700 million monthly users need a licence of their own; derived models carry 'Llama' in the name",
    "llama3.2": "more than 700 million monthly users need a licence; the multimodal models are not licensed in the EU",
    "llama3.3": "more than 700 million monthly users need a licence of their own; derived models carry 'Llama' in the name",
    "llama4": "more than 700 million monthly users need a licence; not licensed to persons and companies in the EU",
    "gemma": "the use policy must be passed on to your users, and use that it forbids must be prevented",
    "openrail": "the use restrictions of its annex must be passed on to your users",
    "openrail++": "the use restrictions of its annex must be passed on to your users",
    "bigscience-openrail-m": "the use restrictions of its annex must be passed on to your users",
    "creativeml-openrail-m": "the use restrictions of its annex must be passed on to your users",
    "bigcode-openrail-m": "the use restrictions of its annex must be passed on to your users",
    "cc-by-nc-4.0": "no commercial use",
    "cc-by-nc-sa-4.0": "no commercial use; derived works under the same licence",
    "cc-by-nc-nd-4.0": "no commercial use; no derived works",
    "cc-by-nd-4.0": "no derived works, which includes quantized ones",
    "cc-by-sa-4.0": "derived works under the same licence",
    "gpl-3.0": "what is distributed with it comes under the same licence",
    "agpl-3.0": "the source of what is served over a network must be offered to its users",
    "lgpl-3.0": "changes to it come under the same licence",
    "deepseek": "the use restrictions of its annex must be passed on to your users",
    "qwen": "more than 100 million monthly users need a licence of their own",
    "tongyi-qianwen": "more than 100 million monthly users need a licence of their own",
    "qwen-research": "research only, no commercial use",
    "mrl": "research only, no commercial use",
    "mnpl": "no production and no commercial use",
    "apple-amlr": "research only, no commercial use",
    "nvidia-open-model-license": "ends when its guardrails are removed without a substitute",
    "modified-mit": "above a number of users or revenue its name must be shown",
}


def read(declared: str, *, title: str = "") -> Licence:
    """Read a declared licence (an identifier as model cards use it). ``title`` is a name behind 'other'."""
    name = (title if declared.strip().lower() in ("other", "") else declared).strip().lower().replace(" ", "-")
    if not name:
        return Licence(name="none declared", standing="unknown", clause="the files declare no licence")
    if name in _PERMISSIVE:
        return Licence(name=name, standing="permissive")
    if name in _RESTRICTED:
        return Licence(name=name, standing="restricted", clause=f"{name}: {_RESTRICTED[name]}")
    for known, clause in _RESTRICTED.items():
        if name.startswith(known):
            return Licence(name=name, standing="restricted", clause=f"{name}: {clause}")
    return Licence(name=name, standing="unknown", clause=f"'{name}' is no licence that Stoker knows: read it first")
