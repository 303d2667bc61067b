package policy_test

import (
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/policy"
)

// encodingsAreSafe: what is beyond ASCII to the policy is so to the server, after it has
// converted the text to the database's encoding. An encoding that may be a client's alone
// is one whose characters may hold ASCII bytes, and is refused; from the others no
// character becomes an ASCII one.
func (l *lab) encodingsAreSafe() {
	for _, e := range l.column("SELECT e FROM (SELECT pg_encoding_to_char(i) e FROM generate_series(0, 60) i) x WHERE e <> ''") {
		code := sqlstate(l.admin, fmt.Sprintf("CREATE DATABASE extra ENCODING '%s' TEMPLATE nothing", e))
		if client := code != "3D000"; client != policy.UnsafeEncoding(e) {
			l.t.Errorf("%s: only a client's %v (%s), unsafe %v", e, client, code, policy.UnsafeEncoding(e))
		}
	}
	for sql := range strings.SplitSeq(conversions, ";;\n") {
		l.exec(l.admin, sql)
	}
	if bad := l.column("SELECT concat_ws(' ', src, dst, b, r) FROM turned LIMIT 5"); len(bad) > 0 {
		l.t.Errorf("characters become ASCII: %q", bad)
	}
	if n := l.scalar(l.admin, "SELECT count(DISTINCT (src, dst)) FROM tried"); len(n) < 2 {
		l.t.Errorf("only %s conversions were tried", n)
	}
}

// conversions tries, between every two encodings of databases, each character of one byte and
// each of two, and from UTF8 those of its first 12,000 and the full-width forms.
const conversions = `SET statement_timeout = '5min';;
CREATE TEMP TABLE turned (src text, dst text, b bytea, r bytea);;
CREATE TEMP TABLE tried (src text, dst text);;
DO $do$
DECLARE
	src name; dst name; r bytea; b bytea; i int; clients text[] := ARRAY['SJIS','BIG5','GBK','GB18030','UHC','JOHAB','SHIFT_JIS_2004'];
BEGIN
	FOR src, dst IN SELECT pg_encoding_to_char(conforencoding), pg_encoding_to_char(contoencoding) FROM pg_conversion WHERE condefault LOOP
		CONTINUE WHEN src = ANY(clients) OR dst = ANY(clients);
		INSERT INTO tried VALUES (src, dst);
		FOR i IN SELECT g FROM generate_series(128, 65535) g LOOP
			CONTINUE WHEN i > 255 AND src NOT LIKE 'EUC%' AND src NOT IN ('MULE_INTERNAL', 'UTF8') OR i > 255 AND src <> 'UTF8' AND (i < 32768 OR i & 128 = 0)
				OR src = 'UTF8' AND i > 12000 AND i < 65280;
			b := CASE WHEN src = 'UTF8' THEN convert_to(chr(i), 'UTF8') ELSE decode(lpad(to_hex(i), CASE WHEN i > 255 THEN 4 ELSE 2 END, '0'), 'hex') END;
			BEGIN
				r := convert(b, src, dst);
			EXCEPTION WHEN others THEN
				CONTINUE;
			END;
			IF (SELECT bool_or(get_byte(r, k) < 128) FROM generate_series(0, length(r) - 1) k) THEN
				INSERT INTO turned VALUES (src, dst, b, r);
			END IF;
		END LOOP;
	END LOOP;
END $do$`
