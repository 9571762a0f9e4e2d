"""Finding secrets and personal data in text, and what stands in their place."""
