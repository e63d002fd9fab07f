"""The demonstration: the reference scheduler, a real Prometheus and the tuner, side by side in simulated time."""
