"""Training and inference on stacks of clients."""
