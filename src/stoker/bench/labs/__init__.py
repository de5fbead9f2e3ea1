"""Guided experiments: a question, a method, numbers, and what is surprising about them."""
