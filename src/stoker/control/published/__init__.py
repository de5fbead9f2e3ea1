"""How what a user wrote becomes what the gateways read."""
