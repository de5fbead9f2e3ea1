"""Text with its line numbers, and faults that name them."""
