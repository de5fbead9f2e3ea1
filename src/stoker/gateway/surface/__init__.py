"""What is seen of the gateway besides answers: the models, and errors in the words of each dialect."""
