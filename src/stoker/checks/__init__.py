"""Checks of what is set up: the clients' settings, and what an endpoint really speaks."""
