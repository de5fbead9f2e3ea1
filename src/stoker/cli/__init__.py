"""The command line: talks to a person; builds and wires everything."""
