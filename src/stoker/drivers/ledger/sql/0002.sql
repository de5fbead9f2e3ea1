-- Sessions are asked for by their hash; most requests have none, and are not in the index.
ALTER TABLE records ADD COLUMN session TEXT AS (json_extract(CAST(body AS TEXT), '$.session')) VIRTUAL;
CREATE INDEX records_by_session ON records (session, at) WHERE session IS NOT NULL;
