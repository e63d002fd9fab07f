"""What clocktuner shows of itself over HTTP: metrics, liveness and readiness. Read-only."""
