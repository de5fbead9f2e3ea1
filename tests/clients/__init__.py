"""Real clients, as their users run them."""
