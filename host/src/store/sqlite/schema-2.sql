-- Events of all sessions are in one table, in the order in which they were committed, so that a commit writes to its end
-- and not to a page for each session. `before` is the place of the event before it in its session, 0 where there never was
-- one. Each 64th event of a session is marked, and `extent` says where its newest is. Whoever writes an event writes that,
-- too, and finds out whether the session is there, so that it is not looked up for each event.
CREATE TABLE journal (
    place INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
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

INSERT INTO journal (place, session, seq, before, at_ms, run, body)
SELECT row_number() OVER sorted, session, seq,
       iif(lag(session) OVER sorted IS session, row_number() OVER sorted - 1, 0),
       at_ms, run, body
FROM event WINDOW sorted AS (ORDER BY session, seq);

INSERT INTO mark (session, seq, place)
SELECT session, seq, place FROM journal WHERE seq % 64 = 0;

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
SELECT key, first_seq, last_seq, ifnull(newest, 0), event_bytes, updated_ms
FROM session LEFT JOIN (SELECT session, max(place) AS newest FROM journal GROUP BY session) ON session = key;

ALTER TABLE session DROP COLUMN first_seq;
ALTER TABLE session DROP COLUMN last_seq;
ALTER TABLE session DROP COLUMN event_bytes;
ALTER TABLE session DROP COLUMN updated_ms;

DROP TABLE event;
