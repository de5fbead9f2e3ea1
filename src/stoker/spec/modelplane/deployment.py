"""ModelDeployment of Modelplane: the engines stay as they are, what stands beside them is lifted to the top."""

from typing import Final

from stoker.base.json import JsonObject
from stoker.spec.modelplane.converted import Converted, part
from stoker.spec.reading.faults import Path

_LIFTED: Final = ("clusterSelector", "modelCacheRef", "serving", "tolerations")


def model_deployment(spec: JsonObject) -> Converted:
    """Build our deployment with opaque engines."""
    made: JsonObject = {key: value for key, value in spec.items() if key != "template"}
    moved: dict[Path, Path] = {}
    template = spec.get("template")
    inner = part(spec, "template", "spec")
    if isinstance(template, dict) and isinstance(inner, dict):
        made["template"] = {**template, "spec": {k: v for k, v in inner.items() if k not in _LIFTED}}
        for key in _LIFTED:
            if key in inner:
                made[key] = inner[key]
                moved["spec", key] = ("spec", "template", "spec", key)
    elif template is not None:
        made["template"] = template
    return Converted(spec=made, moved=moved)
