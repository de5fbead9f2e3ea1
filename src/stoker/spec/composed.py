"""What the controller composes: replicas of deployments, and routes of services. Nobody writes these by hand."""

from typing import Literal

from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.gateway import Timeouts
from stoker.spec.meta import Bool, Natural, Spec, Text


class ModelReplicaSpec(Spec):
    """One copy of a deployment's template, as it was when the copy was made."""

    deployment: Text
    index: Natural
    template_hash: Text
    cluster: str = "local"
    devices: tuple[str, ...] = ()
    retired: Bool = False
    template: ModelDeploymentSpec


class RouteTarget(Spec):
    """One endpoint of a route, and what the gateway may do with it."""

    name: Text
    state: Literal["probe", "serve", "drain"] = "serve"
    priority: Natural = 0
    weight: Natural = 1


class ModelRouteSpec(Spec):
    """One service on one gateway."""

    gateway_name: Text
    service_name: Text
    endpoints: tuple[RouteTarget, ...] = ()
    timeouts: Timeouts = Timeouts()
