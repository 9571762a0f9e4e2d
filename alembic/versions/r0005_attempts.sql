-- What came of each attempt, for a new database: a migration makes these columns beside writers.
ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS outcome text,
    ADD COLUMN IF NOT EXISTS status int4,
    ADD COLUMN IF NOT EXISTS ms int4,
    ADD COLUMN IF NOT EXISTS retry_after_ms int4,
    ADD COLUMN IF NOT EXISTS cost_nano int8;
ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 2;
