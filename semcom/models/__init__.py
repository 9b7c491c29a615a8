"""Networks: encoders, heads, and the semantic centroid generator, as architectures without weights."""
