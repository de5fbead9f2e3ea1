"""What each known client needs to be told, one file each. Pure."""
