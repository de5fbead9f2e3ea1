"""Ledgers: where records of requests are kept and summed."""
