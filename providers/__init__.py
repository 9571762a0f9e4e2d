"""How requests get to providers: the HTTP client that the gateway and the judges share. Knows no
dialect and no policy."""
