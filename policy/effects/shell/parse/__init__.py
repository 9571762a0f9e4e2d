"""The grammar of shell texts: words, commands, and what stands between them."""
