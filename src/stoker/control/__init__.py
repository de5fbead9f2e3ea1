"""The control plane: the API, the reconcile loops, and what they do to the world."""
