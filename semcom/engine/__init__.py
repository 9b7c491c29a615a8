"""The engine: stacks of clients, their local training, and their exchange with the base station."""
