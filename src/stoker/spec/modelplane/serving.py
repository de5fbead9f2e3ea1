"""InferenceGateway, ModelCache, ModelEndpoint and ModelService of Modelplane."""

from typing import Final
from urllib.parse import urlsplit

from stoker.base.json import Json, JsonObject
from stoker.spec.modelplane.converted import Converted, part, without
from stoker.spec.reading.faults import Path

_OFF: Final = ("0", "0s", "0m", "0h")


def inference_gateway(spec: JsonObject) -> Converted:
    """Keep which services are exposed; v0.3 had no such choice and no authentication."""
    made: JsonObject = {}
    ignored = []
    if "backend" in spec:
        ignored.append("spec.backend: this platform's own gateway serves; callers need keys (declare a Caller)")
        ignored.append("spec.serviceSelector is absent: v0.3 exposed every service, here nothing is until it is named")
    if "traefik" in spec:
        ignored.append("spec.traefik: no load balancer is installed here")
    if "clusterName" in spec:
        ignored.append("spec.clusterName: the gateway runs where the platform runs")
    if part(spec, "tls"):
        ignored.append("spec.tls: name certificate files in spec.listeners[].tls")
    if part(spec, "auth", "method") is not None:
        made["auth"] = {"methods": [part(spec, "auth", "method")]}
    if part(spec, "auth", "apiKey"):
        ignored.append("spec.auth.apiKey: keys belong to Caller resources here")
    if "serviceSelector" in spec:
        made["serviceSelector"] = spec["serviceSelector"]
    return Converted(spec=made, ignored=tuple(ignored))


def model_cache(spec: JsonObject) -> Converted:
    """Same fields; the token's usual name inside its secret is filled in."""
    secret = part(spec, "huggingFace", "authSecret")
    hub = spec.get("huggingFace")
    if isinstance(secret, dict) and isinstance(hub, dict):
        return Converted(spec={**spec, "huggingFace": {**hub, "authSecret": {"key": "HF_TOKEN", **secret}}})
    return Converted(spec=spec)


def model_endpoint(spec: JsonObject) -> Converted:
    """Split v0.3's ``url`` into origin and path; v0.5 has them apart already."""
    if "url" in spec or "rewritePath" in spec:
        return _from_url(spec)
    made: JsonObject = {key: value for key, value in spec.items() if key != "credential"}
    credential = spec.get("credential")
    moved: dict[Path, Path] = {}
    if isinstance(credential, dict):
        secret = part(credential, "apiKey", "secretRef")
        made["credential"] = {**without(credential, "apiKey"), **({"secretRef": secret} if secret else {})}
        moved["spec", "credential", "secretRef"] = ("spec", "credential", "apiKey", "secretRef")
    return Converted(spec=made, moved=moved)


def model_service(spec: JsonObject) -> Converted:
    """Same fields; a timeout that is off is left out."""
    timeouts = spec.get("timeouts")
    if not isinstance(timeouts, dict):
        return Converted(spec=spec)
    kept: Json = {key: value for key, value in timeouts.items() if value not in _OFF}
    return Converted(spec={**spec, "timeouts": kept})


def _from_url(spec: JsonObject) -> Converted:
    """A service's prefix was cut off before the rewrite, so requests came as ``/v1/…`` under the rewritten path."""
    url = spec.get("url")
    moved: dict[Path, Path] = {("spec", "origin"): ("spec", "url"), ("spec", "api"): ("spec", "url")}
    if not isinstance(url, str):
        return Converted(spec={"origin": url}, moved=moved)
    parts = urlsplit(url)
    rewrite = spec.get("rewritePath")
    path = rewrite if isinstance(rewrite, str) else parts.path
    made: JsonObject = {
        "origin": f"{parts.scheme}://{parts.netloc}",
        "api": {"schema": "OpenAI", "prefix": f"{path.rstrip('/')}/v1"},
    }
    lost = ("spec.url: its query is not sent on",) if parts.query else ()
    return Converted(spec=made, moved=moved, ignored=lost)
