"""Models small enough to be made on the spot."""
