"""Does an endpoint speak the dialects as real clients need it? Probes, one file a dialect, against any URL."""
