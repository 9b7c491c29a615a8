"""The parts that several methods are made of, and only methods use."""
