"""The scripted engine: real dialect, real metric names, faults from a file. The simulated engine grows from it."""
