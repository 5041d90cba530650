"""Settings shared by all tests."""

from hypothesis import settings

# ``pytest --hypothesis-profile thorough`` looks harder, at new examples every time.
settings.register_profile("ci", max_examples=50, derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")
