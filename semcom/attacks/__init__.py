"""Attacks on stored runs: what a receiver or a listener learns of the clients' images. Nothing is trained again."""
