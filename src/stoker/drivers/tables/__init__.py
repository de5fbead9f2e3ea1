"""Small tables in files that all workers of a machine map."""
