"""Experiments carried out: planned, run, measured, resumed.

What is stored and read back is in ``results``; pictures, tables and pages are in ``show``. Read
``recursion`` first: it is the one loop, in which algorithm, engine and problem meet; ``execute``
drives it.
"""
