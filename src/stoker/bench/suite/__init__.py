"""The check suite: small cases whose answer is known, asked at rest and inside the load."""
