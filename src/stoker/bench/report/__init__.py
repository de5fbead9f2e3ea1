"""How is an experiment shown? One page that needs nothing from anywhere else."""
