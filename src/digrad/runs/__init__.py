"""Experiments: planned, run, measured, stored, resumed, read back.

Pictures, tables and pages of what was recorded are in ``show``. Read ``recursion`` first: it is
the one loop, in which algorithm, engine and problem meet; ``execute`` drives it.
"""
