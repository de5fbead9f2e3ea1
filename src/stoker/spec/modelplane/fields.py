"""The fields of Modelplane's kinds at the two versions that are read here: v0.3.1 and v0.5.

A path ends where a free map or a block that is ignored as a whole begins. ``{}`` stands for any key of a map.
"""

from typing import Final

V03: Final[dict[str, str]] = {
    "InferenceClass": (
        "description provisioning devices[].name devices[].claim devices[].driver devices[].deviceClassName "
        "devices[].count devices[].attributes.{}.string devices[].attributes.{}.version devices[].attributes.{}.bool "
        "devices[].attributes.{}.int devices[].capacity.{}.value"
    ),
    "InferenceCluster": (
        "cluster.source cluster.existing.secretRef.name cluster.existing.secretRef.key "
        "cluster.existing.identitySecretRef.name cluster.existing.identitySecretRef.key "
        "cluster.existing.identitySecretRef.type cluster.existing.cache.storageClassName cluster.gke cluster.eks "
        "cluster.aks cluster.nebius cluster.vultr taints[].key taints[].value taints[].effect nodePools[].name "
        "nodePools[].className nodePools[].nodeCount nodePools[].minNodeCount nodePools[].maxNodeCount "
        "nodePools[].zones nodePools[].capacityBlock.capacityReservationId nodePools[].fabric.type "
        "nodePools[].fabric.infiniband.fabric"
    ),
    "InferenceGateway": ("backend traefik"),
    "ModelCache": (
        "source huggingFace.repo huggingFace.revision huggingFace.authSecret.name huggingFace.authSecret.key "
        "huggingFace.sizeGiB clusterSelector.matchLabels"
    ),
    "ModelDeployment": (
        "replicas template.metadata.labels template.spec.clusterSelector.matchLabels template.spec.modelCacheRef.name "
        "template.spec.serving.mode template.spec.tolerations[].key template.spec.tolerations[].operator "
        "template.spec.tolerations[].value template.spec.tolerations[].effect template.spec.engines[].name "
        "template.spec.engines[].copies template.spec.engines[].phase template.spec.engines[].members[].role "
        "template.spec.engines[].members[].nodeSelector.devices[].name "
        "template.spec.engines[].members[].nodeSelector.devices[].count "
        "template.spec.engines[].members[].nodeSelector.devices[].selectors[].cel "
        "template.spec.engines[].members[].worker.nodes template.spec.engines[].members[].template.metadata.labels "
        "template.spec.engines[].members[].template.metadata.annotations "
        "template.spec.engines[].members[].template.spec.containers[].name "
        "template.spec.engines[].members[].template.spec.containers[].image "
        "template.spec.engines[].members[].template.spec.containers[].command "
        "template.spec.engines[].members[].template.spec.containers[].args "
        "template.spec.engines[].members[].template.spec.containers[].env[].name "
        "template.spec.engines[].members[].template.spec.containers[].env[].value "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.secretKeyRef.name "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.secretKeyRef.key "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.secretKeyRef.optional "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.configMapKeyRef.name "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.configMapKeyRef.key "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.configMapKeyRef.optional "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.fieldRef.fieldPath "
        "template.spec.engines[].members[].template.spec.containers[].env[].valueFrom.fieldRef.apiVersion "
        "template.spec.engines[].members[].template.spec.imagePullSecrets[].name"
    ),
    "ModelEndpoint": ("url rewritePath"),
    "ModelService": ("endpoints[].weight endpoints[].selector.matchLabels"),
}

# What v0.5 has besides.
V05: Final[dict[str, str]] = {
    "InferenceCluster": ("cluster.civo cluster.coreweave stack cluster.existing.components placement.metadata.labels"),
    "InferenceGateway": (
        "clusterName tls.certificateRefs[].name auth.method auth.apiKey.secretSelector.matchLabels "
        "serviceSelector.matchLabels"
    ),
    "ModelEndpoint": (
        "origin api.schema api.prefix model credential.method credential.apiKey.secretRef.name "
        "credential.apiKey.secretRef.key"
    ),
    "ModelService": ("endpoints[].name endpoints[].priority timeouts.request timeouts.idle"),
}

# What v0.5 no longer has: together with a field of v0.5 they make a document of neither version.
V03_ONLY: Final[dict[str, str]] = {
    "InferenceGateway": "backend traefik",
    "ModelEndpoint": "url rewritePath",
}
