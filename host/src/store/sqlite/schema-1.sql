CREATE TABLE counter (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO counter (name, value) VALUES ('next-session', 1), ('next-unit', 1);

-- One row for every session that there ever was: names are not used twice.
-- `deleted` is 0 while it is there, 1 while rows of it are left, and 2 afterwards.
CREATE TABLE session (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    deleted INTEGER NOT NULL DEFAULT 0,
    agent TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    run TEXT,
    brings INTEGER,
    first_seq INTEGER NOT NULL DEFAULT 1,
    last_seq INTEGER NOT NULL DEFAULT 0,
    event_bytes INTEGER NOT NULL DEFAULT 0,
    first_message INTEGER NOT NULL DEFAULT 1,
    last_message INTEGER NOT NULL DEFAULT 0,
    message_bytes INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0,
    units_open INTEGER NOT NULL DEFAULT 0,
    units_unread INTEGER NOT NULL DEFAULT 0,
    units_read INTEGER NOT NULL DEFAULT 0,
    runs_open INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX session_unfinished ON session (key)
    WHERE run IS NOT NULL OR units_open > 0 OR units_unread > 0 OR runs_open > 0;
CREATE INDEX session_swept ON session (key) WHERE deleted = 1;

CREATE TABLE event (
    session INTEGER NOT NULL REFERENCES session (key),
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    run TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE message (
    session INTEGER NOT NULL REFERENCES session (key),
    number INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory (
    session INTEGER NOT NULL REFERENCES session (key),
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE open_run (
    place INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (key),
    run TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (session, run)
) STRICT;

CREATE TABLE kept (
    place INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (key),
    run TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX kept_of_run ON kept (session, run);

-- `state` is 0 for accepted, 1 for ended, 2 for acknowledged.
CREATE TABLE unit (
    unit INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (key),
    state INTEGER NOT NULL,
    ended INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0,
    body TEXT NOT NULL,
    completion TEXT
) STRICT;
CREATE INDEX unit_of_session ON unit (session, state, ended);

CREATE TABLE child (
    unit INTEGER NOT NULL REFERENCES unit (unit),
    task INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (unit, task)
) STRICT, WITHOUT ROWID;
