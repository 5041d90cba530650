"""Recursions, each written once."""
