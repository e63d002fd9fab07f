"""The values that pass between the stages. Pure data and pure functions: no I/O, no clock, no randomness."""
