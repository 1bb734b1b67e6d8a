"""Cache models that imitate the engines exactly."""
