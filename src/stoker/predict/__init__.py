"""The planner: what a model needs, what fits, and how wrong that is. Pure: files and coefficients come in as values."""
