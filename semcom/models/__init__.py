"""Networks: encoders, heads, the semantic centroid generator; no weights live here, only architectures."""
