"""Modelplane's manifests as ours: pure functions from raw to raw, one a kind, frozen at v0.3.1 and v0.5.

Our types never grow for them. A field of a newer version is an error that names the versions that are read.
"""

from stoker.spec.modelplane.convert import API_VERSION, KINDS, convert, why_refused
from stoker.spec.modelplane.converted import Converted

__all__ = ["API_VERSION", "KINDS", "Converted", "convert", "why_refused"]
