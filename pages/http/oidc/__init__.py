"""People log in by OpenID Connect: authorization code flow with PKCE, and logout by the
provider."""
