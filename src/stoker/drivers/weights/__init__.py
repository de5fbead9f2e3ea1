"""What model files say about themselves."""

from stoker.drivers.weights.files import INDEX, Weights, read
from stoker.drivers.weights.survey import Survey, survey

__all__ = ["INDEX", "Survey", "Weights", "read", "survey"]
