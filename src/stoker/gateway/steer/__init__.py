"""Which replica should have this request, and what does the choice rest on?"""
