"""The air between base station and clients: places, schedulers, access, rates, compression, arrivals, time."""
