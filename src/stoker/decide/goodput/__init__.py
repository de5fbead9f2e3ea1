"""How much load does a fleet take within its bar, and which fleet is the cheapest that does?"""
