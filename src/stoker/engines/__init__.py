"""What Stoker knows of each inference engine: flags, probes, metric names, log lines. Pure."""
