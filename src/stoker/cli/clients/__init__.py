"""Commands about clients: connect one, and see what an endpoint speaks."""
