"""What a user declares: one frozen model per noun, read from manifests with file and line. Pure."""
