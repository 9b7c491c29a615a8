"""The air between the base station and the clients: who is scheduled, at which rates, what arrives, and when."""
