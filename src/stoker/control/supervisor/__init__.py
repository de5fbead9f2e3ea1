"""The supervisor: the one process that starts the others. It imports nothing of the controller."""
