"""Everything an operator may set, in one policy file, and how it is read.

Each field has its unit in its name or its description, a default, the reason for it, and bounds. The JSON schema
beside the policies is generated from these classes.
"""
