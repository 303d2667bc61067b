-- What the leaders of the examples write: one line a piece of work. The proxy tells the
-- session its fencing number, so that no program has to know it.
CREATE TABLE journal (
	id     bigserial PRIMARY KEY,
	worker text NOT NULL,
	number bigint NOT NULL DEFAULT current_setting('fence.number')::bigint
);

-- What the consumers work off.
CREATE TABLE queue (
	id        bigserial PRIMARY KEY,
	partition text NOT NULL,
	body      text NOT NULL
);
