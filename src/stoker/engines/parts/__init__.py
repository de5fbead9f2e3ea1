"""What the adapters are made of: tables of flags, of metric names, of log lines."""
