"""Whether a change did what was promised, against what would have been without it."""
