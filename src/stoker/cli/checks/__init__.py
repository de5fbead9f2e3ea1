"""Commands that check a running Stoker from outside."""
