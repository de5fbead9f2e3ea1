"""The hands: everything that touches processes, disks, stores and other people's servers."""
