-- One row: the random name of this database's history. A restore draws a new one, so that old versions never match.
CREATE TABLE meta (epoch TEXT NOT NULL, version INTEGER NOT NULL);

CREATE TABLE resources (
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    uid       TEXT NOT NULL UNIQUE,
    owner_uid TEXT NOT NULL,
    version   INTEGER NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
CREATE INDEX resources_by_owner ON resources (owner_uid) WHERE owner_uid <> '';

CREATE TABLE changes (version INTEGER PRIMARY KEY, gone INTEGER NOT NULL, body BLOB NOT NULL);

CREATE TABLE events (
    number    INTEGER PRIMARY KEY AUTOINCREMENT,
    kind      TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    body      BLOB NOT NULL
);
CREATE INDEX events_by_resource ON events (kind, namespace, name, number);

CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
