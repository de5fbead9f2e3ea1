"""Is an answer right? Small cases whose answer is known, and graders that need nobody's opinion."""
