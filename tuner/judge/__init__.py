"""Whether a proposal may go to the cluster, with every reason for and against."""
