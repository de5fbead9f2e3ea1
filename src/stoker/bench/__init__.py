"""What can an endpoint take? Load, measured by rules that are written down first."""
