"""Who can talk to whom, and with which weights."""
