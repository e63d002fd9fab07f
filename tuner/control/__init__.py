"""What people say: orders to a running tuner, what stands of them, and when nothing may be changed.

Pure but for two modules: `spool` keeps the files by which orders travel, and `permission` looks for the kill switch.
"""
