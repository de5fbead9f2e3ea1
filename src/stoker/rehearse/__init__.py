"""Engines that are not real: they speak the real dialects and fail on command."""
