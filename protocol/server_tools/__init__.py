"""Tools that a provider runs, neutral: families and who may use them, the known ones as data, and
how they are described to other vendors."""
