"""IR to IR: render order, volatility, common prefixes, matching traffic to prompts."""
