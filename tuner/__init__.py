"""clocktuner: a sidecar that keeps the settings of a cluster scheduler right, safely.

The packages are the verbs of the loop (observe, forecast, propose, judge, apply, verify, record);
the modules in them are its nouns. `tuner.cycle` reads top to bottom as what the product promises.
"""

__version__ = "0.1.0"
