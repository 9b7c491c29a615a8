"""The figures of this project by name, and what they look like (`rendered/`)."""
