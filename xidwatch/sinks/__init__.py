"""Where findings go: history, metrics, and what an outside reader picks up."""
