"""What do people and agents send, and when?"""
