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
, newest INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE INDEX session_unfinished ON session (key)
    WHERE run IS NOT NULL OR units_open > 0 OR units_unread > 0 OR runs_open > 0;
CREATE INDEX session_swept ON session (key) WHERE deleted = 1;

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

CREATE TABLE journal (
    place INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (key),
    seq INTEGER NOT NULL,
    before INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    run TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE mark (
    session INTEGER NOT NULL REFERENCES session (key),
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 2;
PRAGMA application_id = 1667986030;

UPDATE counter SET value = 4 WHERE name = 'next-session';
UPDATE counter SET value = 13 WHERE name = 'next-unit';
INSERT INTO session (key, name, deleted, agent, settings, created_ms, updated_ms, generation, run, brings, first_seq,
    last_seq, event_bytes, first_message, last_message, message_bytes, ended, units_open, units_unread, units_read,
    runs_open, newest)
VALUES (1, 's1', 0, 'agent', '{"a":1}', 1000, 2000, 2, NULL, NULL, 3, 4, 9, 1, 2, 10, 2, 1, 1, 1, 0, 22),
       (2, 's2', 2, '', '', 1100, 1200, 0, NULL, NULL, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0),
       (3, 's3', 0, 'other', '{}', 1300, 1400, 5, 'w5', 12, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0);
INSERT INTO journal VALUES (20, 1, 3, 7, 1500, 'w1', '"three"'), (22, 1, 4, 20, 1600, 'w2', '4 ');
INSERT INTO message VALUES (1, 1, 1500, 'hello'), (1, 2, 1600, 'there');
INSERT INTO memory VALUES (1, 'key', x'00ff');
INSERT INTO open_run VALUES (1, 3, 'side', 'aside');
INSERT INTO kept VALUES (1, 3, 'w5', 'first'), (2, 3, 'w5', 'second'), (3, 3, 'side', 'third');
INSERT INTO unit VALUES (9, 1, 0, 0, 0, 'nine', NULL), (10, 1, 1, 2, 1, 'ten', 'ten is done'),
    (11, 1, 2, 1, 1, 'eleven', 'eleven is done'), (12, 3, 1, 1, 2, 'twelve', 'twelve is done');
INSERT INTO child VALUES (9, 0, 'child of nine'), (10, 0, 'child of ten');
