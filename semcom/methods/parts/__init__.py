"""What several methods are made of, and only methods use."""
