"""What does a client ask, said in the dialect of an engine? By way of chat, which can say nearly all of it.

What an engine cannot do and a client can do without is left out and named; what would change the answer is refused
with the name of the member, and never lost in silence.
"""
