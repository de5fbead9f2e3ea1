"""Where is a prompt cached, and does it fit there?"""
