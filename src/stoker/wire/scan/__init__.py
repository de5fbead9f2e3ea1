"""What does an engine say in its own dialect? One scanner for each."""
