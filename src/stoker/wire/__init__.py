"""Bytes to facts and back, without a socket. Pure."""
