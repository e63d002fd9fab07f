"""Which setting to try next: Optuna asks, the twin answers, and safety comes before score."""
