"""xidwatch: which GPU fault came first, what kind it is, and what to do next."""

__version__ = "0.1.0"
