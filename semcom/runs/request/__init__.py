"""From what is asked for to a resolved run: fields, inputs, own code, limits."""
