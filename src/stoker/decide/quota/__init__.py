"""How much may be used, and what is taken for a request before it is known?"""
