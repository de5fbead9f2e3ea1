"""What was measured, how sure is it, and what may be said of it?"""
