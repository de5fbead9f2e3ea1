"""InferenceClass and InferenceCluster of Modelplane."""

from stoker.base.json import Json, JsonObject
from stoker.spec.modelplane.converted import Converted, items, part, without
from stoker.spec.reading.faults import Path

_CLOUDS = ("gke", "eks", "aks", "nebius", "vultr", "civo", "coreweave")


def inference_class(spec: JsonObject) -> Converted:
    """Keep the devices; how a cloud would make such a node is not our business."""
    ignored = ("spec.provisioning: clouds are not provisioned here",) if "provisioning" in spec else ()
    return Converted(spec=without(spec, "provisioning"), ignored=ignored)


def inference_cluster(spec: JsonObject) -> Converted:
    """Lift ``cluster`` up; keep pools, taints and the way to an existing cluster."""
    made: JsonObject = {key: spec[key] for key in ("taints",) if key in spec}
    moved: dict[Path, Path] = {}
    ignored = [f"spec.{key}: the serving stack is not installed here" for key in ("stack", "placement") if key in spec]
    source = part(spec, "cluster", "source")
    if source is not None:
        made["source"] = source
    moved["spec", "source"] = ("spec", "cluster", "source")
    ignored += [
        f"spec.cluster.{cloud}: clouds are not provisioned here" for cloud in _CLOUDS if part(spec, "cluster", cloud)
    ]
    existing = part(spec, "cluster", "existing")
    if isinstance(existing, dict):
        made["existing"], lost = _existing(existing)
        moved["spec", "existing"] = ("spec", "cluster", "existing")
        ignored += lost
    if "nodePools" in spec:
        made["nodePools"] = [
            without(pool, "capacityBlock", "fabric") if isinstance(pool, dict) else pool
            for pool in items(spec["nodePools"])
        ]
    ignored += [
        f"spec.nodePools[{index}].{key}: clouds are not provisioned here"
        for index, pool in enumerate(items(spec.get("nodePools")))
        for key in ("capacityBlock", "fabric")
        if part(pool, key)
    ]
    return Converted(spec=made, ignored=tuple(ignored), moved=moved)


def _existing(existing: JsonObject) -> tuple[Json, list[str]]:
    lost = [
        f"spec.cluster.existing.{key}: only secretRef is used here"
        for key in ("identitySecretRef", "cache", "components")
        if key in existing
    ]
    secret = existing.get("secretRef")
    if isinstance(secret, dict):
        secret = {"key": "kubeconfig", **secret}
    return ({"secretRef": secret} if secret is not None else {}), lost
