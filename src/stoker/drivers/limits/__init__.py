"""The levels of limits: in a file that the workers of one machine map, and in a store that several machines share."""
