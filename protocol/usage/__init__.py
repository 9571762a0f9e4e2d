"""How many tokens there are, and what they cost."""
