"""Observe: reads the metrics source and says what is known of the cluster at one instant, and how well."""
