"""The store of desired state and status: one interface, several implementations, one test suite."""
