-- A login of a person, whom a provider of OpenID Connect names: the name with the subject, the provider, the name of its session there, and
-- the roles that it gave then; `key_sha256` is made from provider and subject. Of a key all of these are empty.
ALTER TABLE page_sessions
    ADD COLUMN person text NOT NULL DEFAULT '',
    ADD COLUMN issuer text NOT NULL DEFAULT '',
    ADD COLUMN sid text NOT NULL DEFAULT '',
    ADD COLUMN roles text[] NOT NULL DEFAULT '{}';
