"""What commands do: tables of their options and words, and the effects of them together."""
