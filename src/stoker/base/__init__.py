"""The cellar: errors, units, clock, log. Every floor may use it; it knows none of them."""
