"""FedCRC: its tables and figures, and what came out (README.md)."""
