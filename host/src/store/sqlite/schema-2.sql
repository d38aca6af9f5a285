-- Events of all sessions are in one table, in the order in which they were committed, so that a commit writes to its end
-- and not to a page for each session. `before` is the place of the event before it in its session, 0 where there never was
-- one. Each 64th event of a session is marked, and the session knows its newest.
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

INSERT INTO journal (place, session, seq, before, at_ms, run, body)
SELECT row_number() OVER sorted, session, seq,
       iif(lag(session) OVER sorted IS session, row_number() OVER sorted - 1, 0),
       at_ms, run, body
FROM event WINDOW sorted AS (ORDER BY session, seq);

INSERT INTO mark (session, seq, place)
SELECT session, seq, place FROM journal WHERE seq % 64 = 0;

ALTER TABLE session ADD COLUMN newest INTEGER NOT NULL DEFAULT 0;
UPDATE session SET newest = found.place
FROM (SELECT session, max(place) AS place FROM journal GROUP BY session) AS found
WHERE found.session = session.key;

DROP TABLE event;
