"""What model files say about themselves."""

from stoker.drivers.weights.files import INDEX, Weights, read

__all__ = ["INDEX", "Weights", "read"]
