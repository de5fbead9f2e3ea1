"""Counters that outlive their worker."""
