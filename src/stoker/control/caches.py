"""Model caches: bring their files here, and tell how far they are."""

from typing import cast

from stoker.base import clock
from stoker.base.json import JsonObject
from stoker.control.deployments import write_status
from stoker.control.desk import Desk
from stoker.control.evidence.stock import Look, Want
from stoker.control.world import World
from stoker.decide.conditions import no, stamp, yes
from stoker.drivers.store.base import Resource
from stoker.spec.cache import ModelCacheSpec
from stoker.spec.kinds import parse_spec


async def run(desk: Desk, world: World) -> None:
    """Look at every cache once, start what is missing, and write its status."""
    wants = {(r.namespace, r.name): _want(desk, r) for r in world.all("ModelCache")}
    desk.stock.set_caches(wants)
    for resource in world.all("ModelCache"):
        want = wants[resource.namespace, resource.name]
        look = desk.stock.look(want)
        if not look.files.ok and look.files.reason == "Absent":
            desk.stock.fetch(want)
        await _write(desk, resource, look)


def _want(desk: Desk, resource: Resource) -> Want:
    spec = cast("ModelCacheSpec", parse_spec("ModelCache", resource.spec))
    checks = tuple(sorted(spec.verify.files.items())) if spec.verify else ()
    if spec.verify and spec.verify.sha256:
        checks = (("", spec.verify.sha256), *checks)
    if spec.hugging_face is not None:
        hub = spec.hugging_face
        secret = str(desk.layout.keys / f"{hub.auth_secret.name}.{hub.auth_secret.key}") if hub.auth_secret else ""
        return Want(
            repo=hub.repo,
            revision=hub.revision,
            token_file=secret,
            include=hub.files,
            sha256=checks,
            accepted=spec.accept_licence,
        )
    if spec.directory is not None:
        return Want(path=spec.directory.path, accepted=spec.accept_licence)
    if spec.http is not None:
        return Want(url=spec.http.url, sha256=checks, accepted=spec.accept_licence)
    return Want(missing="source S3 is accepted, but nothing fetches from it yet")


async def _write(desk: Desk, resource: Resource, look: Look) -> None:
    files = look.files
    if look.refused:
        told = no("ArtifactReady", "Refused", look.refused, action=look.refused_action)
    elif files.ok:
        told = yes("ArtifactReady", "Staged", files.message)
    else:
        told = no("ArtifactReady", files.reason, files.message, action=files.action)
    phase = (
        "Ready" if told.status == "True" else {"Fetching": "Hydrating", "Absent": "Pending"}.get(files.reason, "Failed")
    )
    local: JsonObject = {"name": "local", "phase": phase, "message": told.message}
    if look.bytes_total:
        local |= {"bytesDone": look.bytes_done, "bytesTotal": look.bytes_total}
    status: JsonObject = {
        "conditions": stamp(
            resource.status.get("conditions"),
            [
                yes("Accepted", "SpecValid"),
                told,
                yes("Ready", "Staged") if told.status == "True" else no("Ready", told.reason, told.message),
            ],
            generation=resource.generation,
            at=clock.rfc3339(clock.now()),
        ),
        "clusters": [local],
        "summary": {"ready": f"{int(phase == 'Ready')}/1"},
    }
    await write_status(desk, resource, status)
