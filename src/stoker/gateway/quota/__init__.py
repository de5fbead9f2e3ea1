"""How much may still be asked, on this machine and over all of them?"""
