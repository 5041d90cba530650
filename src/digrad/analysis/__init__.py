"""What one network, or several side by side, mean for a user: theory put into words.

Nothing is computed here that ``theory`` could compute, and nothing is run. Read
``network_analysis`` first: ``analyze`` makes the one object that all reports show.
"""

from digrad.analysis.network_analysis import Analysis, analyze
from digrad.analysis.timetable_analysis import TimetableAnalysis

__all__ = ["Analysis", "TimetableAnalysis", "analyze"]
