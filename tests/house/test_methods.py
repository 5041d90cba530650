"""The page of methods says what the code does."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tables_are_those_of_the_code() -> None:
    """``make methods`` writes them."""
    sys.path.insert(0, str(DOCS))
    try:
        import methods
    finally:
        sys.path.remove(str(DOCS))
    assert methods.page() == methods.PAGE.read_text(encoding="utf-8")
