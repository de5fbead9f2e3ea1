"""What is allowed, but will surprise its owner later."""
