"""May this be tried again? Retries by a budget, poison not at all."""
