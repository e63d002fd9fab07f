"""The benchmarks behind `clocktuner bench`: each prints a table and, on request, one JSON file of figures and goals."""
