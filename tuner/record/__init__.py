"""What happened, and why: the journal, the metrics page and the report.

The journal is the only state that outlives the process. The report, `status`, `history` and `explain` are written
from it alone, so that they can be made on any machine that has the file.
"""
