"""The generator: what is sent, when, and what came back."""
