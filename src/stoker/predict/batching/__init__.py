"""Continuous batching as a machine that moves one step at a time; it has no clock of its own."""
