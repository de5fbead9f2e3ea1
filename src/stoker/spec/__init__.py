"""What a user declares: resources, frozen and validated. Pure."""
