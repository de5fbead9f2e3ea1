"""Answers to why: each with its evidence and the setting to change."""
