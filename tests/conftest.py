"""What all tests share."""

import os

# As the command does: many small matrices, on machines that also do other work.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
