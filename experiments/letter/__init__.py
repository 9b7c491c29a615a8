"""The FedCL letter: its figures, and the questions that its results raised."""
