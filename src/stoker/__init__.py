"""Stoker: a self-hosted LLM inference platform for engineers who are new to inference."""

__version__ = "0.1.0"
