CREATE TABLE records (
    id         TEXT PRIMARY KEY,
    at         REAL NOT NULL,
    caller     TEXT NOT NULL,
    service    TEXT NOT NULL,
    model      TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    body       BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX records_by_time ON records (at);

-- Sums by hour (epoch seconds at its start), kept in the transaction that inserts the records.
CREATE TABLE hours (
    hour       INTEGER NOT NULL,
    caller     TEXT NOT NULL,
    service    TEXT NOT NULL,
    model      TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    requests   INTEGER NOT NULL,
    prompt_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    estimated_requests INTEGER NOT NULL,
    seconds    REAL NOT NULL,
    price_usd  REAL NOT NULL,
    PRIMARY KEY (hour, caller, service, model, outcome)
) WITHOUT ROWID;

-- How far each segment was read.
CREATE TABLE segments (name TEXT PRIMARY KEY, offset INTEGER NOT NULL) WITHOUT ROWID;

-- Damage that was met on the way: what could not be read, and where it lies now.
CREATE TABLE damage (at REAL NOT NULL, segment TEXT NOT NULL, message TEXT NOT NULL);
