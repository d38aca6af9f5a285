-- What every write of a session changes. It stands by itself, so that a commit writes the little that it is, and not all
-- that a session has in its row.
CREATE TABLE extent (
    session INTEGER PRIMARY KEY REFERENCES session (key),
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    event_bytes INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL
) STRICT;

INSERT INTO extent (session, first_seq, last_seq, newest, event_bytes, updated_ms)
SELECT key, first_seq, last_seq, newest, event_bytes, updated_ms FROM session;

ALTER TABLE session DROP COLUMN first_seq;
ALTER TABLE session DROP COLUMN last_seq;
ALTER TABLE session DROP COLUMN newest;
ALTER TABLE session DROP COLUMN event_bytes;
ALTER TABLE session DROP COLUMN updated_ms;

-- Whoever writes an event writes the row in `extent`, too, and finds out whether the session is there, so that it is not
-- looked up for each event.
ALTER TABLE journal RENAME TO journal_before;
CREATE TABLE journal (
    place INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    before INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    run TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
INSERT INTO journal (place, session, seq, before, at_ms, run, body)
SELECT place, session, seq, before, at_ms, run, body FROM journal_before;
DROP TABLE journal_before;
