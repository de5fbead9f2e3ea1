"""Checks of a running service, from outside: what must be closed, and what clients need."""
