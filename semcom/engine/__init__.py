"""The engine: stacked populations of clients and what methods do with them."""
