"""Results to look at: tables, figures and self-contained pages.

Nothing is run or decided here. Read ``tables`` first, the shortest way from a run to an answer.
"""
