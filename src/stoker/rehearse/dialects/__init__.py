"""How the pieces of an answer are written in each dialect, one file each."""
