"""What rooms hand each other: frozen structs with a schema version, readable at N and N-1."""
