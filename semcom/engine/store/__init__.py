"""The store of the clients' models: stacks while they are at work, rows while they rest."""
