"""A reference scheduler: a slice-exact simulation of a shared accelerator cluster, for demos and benchmarks.

It is a thing that the tuner talks to over the wire, and nothing of the tuner but `values` and `errors` is known here.
"""
