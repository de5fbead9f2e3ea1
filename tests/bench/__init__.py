"""The benchmark, against the scripted engine."""
