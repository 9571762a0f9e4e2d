-- What came of each attempt.
-- Beside writers, the migration makes these columns before: here they are for a new database.
ALTER TABLE attempts
    ADD COLUMN IF NOT EXISTS outcome text,
    ADD COLUMN IF NOT EXISTS status int4,
    ADD COLUMN IF NOT EXISTS ms int4,
    ADD COLUMN IF NOT EXISTS retry_after_ms int4,
    ADD COLUMN IF NOT EXISTS cost_nanousd int8;
ALTER TABLE seals ALTER COLUMN made_for SET DEFAULT 2;
