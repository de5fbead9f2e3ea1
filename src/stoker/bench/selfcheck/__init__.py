"""Does the harness measure what is there? Tried on an engine whose truth is known, before a window is spent on it."""
