"""FedCoSR: its tables and figures, and each method at a learning rate of its own."""
