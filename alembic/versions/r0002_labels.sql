-- `always`: an admin allows such a call of this key and project from then on.
ALTER TABLE labels DROP CONSTRAINT labels_label_check;
ALTER TABLE labels ADD CONSTRAINT labels_label_check CHECK (label IN ('right', 'wrong', 'unsure', 'always'));
