"""`python -m xidwatch`."""

from xidwatch.cli import run

if __name__ == "__main__":
    run()
