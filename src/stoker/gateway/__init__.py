"""The data path: an authenticated gateway in front of the engines."""
