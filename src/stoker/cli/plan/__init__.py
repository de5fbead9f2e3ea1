"""What fits, for how many, at what setting: `stoker plan` and `stoker model`."""

from stoker.cli.plan.command import app
from stoker.cli.plan.model import app as model_app

__all__ = ["app", "model_app"]
