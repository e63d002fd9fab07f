"""Proof by breaking: the tuner is killed at every numbered step, and what it leaves behind is looked at."""
