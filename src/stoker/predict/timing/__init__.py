"""How long things take: by roofline, fitted to measured rows."""
