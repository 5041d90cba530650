"""Run the command line as ``python -m digrad``."""

from digrad.cli import main

if __name__ == "__main__":
    main()
