"""Hosts run processes and know nothing of models."""
