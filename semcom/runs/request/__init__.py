"""The way from a request to a resolved run: fields, inputs, own code, limits."""
