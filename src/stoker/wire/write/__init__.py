"""How is one answer written in a client's dialect, whatever the engine speaks? The second half of a translation.

The stream between the two halves is a row of calls: start, text, reasoning, tool, arguments, end, close. A piece of
text is the inside of a JSON string as the engine escaped it, so that a text delta costs one concatenation: nothing is
decoded and nothing encoded.
"""
