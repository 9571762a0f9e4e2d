-- Somebody who logged in at the provider of OpenID Connect. `sha256` is for a person what a key's digest is for a key; the name may change.
CREATE TABLE people (
    sha256 bytea NOT NULL PRIMARY KEY,
    issuer text NOT NULL,
    subject text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- A login of a person has the roles that the provider gave then, and the name of its session there; one of a key has neither.
ALTER TABLE page_sessions ADD COLUMN roles text[], ADD COLUMN sid text NOT NULL DEFAULT '';
