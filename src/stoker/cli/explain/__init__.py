"""Commands that say why."""
