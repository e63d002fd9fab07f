"""Writing settings to the scheduler: compare-and-set, then read back. What was not read back was not applied."""
