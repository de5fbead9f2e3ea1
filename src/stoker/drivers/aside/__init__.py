"""Work that would hold the event loop, done in a process beside it."""
