"""The head: one question a file, each answered by a pure function."""
