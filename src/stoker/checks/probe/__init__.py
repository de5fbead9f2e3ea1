"""Is the door closed to everybody who has no business here, and open to what must be?"""
