"""The twin: a fast approximate model of a scheduler, calibrated from observations only.

It knows nothing of the scheduler but what is measured. A fluid of four groups of work flows through a protected and
an open pool; stochastic waiting is added in closed form. See `kernels` for the physics, `calibration` for how its
parameters are learned, and `model` for how candidates are scored.
"""
