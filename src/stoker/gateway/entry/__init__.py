"""Who gets in, on whose account, and how often?"""
