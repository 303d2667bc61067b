#!/bin/sh
# Any program: it knows nothing of leaders, and runs on every host. PGHOST and PGPORT say
# where its database is.
while :; do
	psql -qX -c "INSERT INTO journal (worker) VALUES ('$1')" && echo "$1 wrote an order"
	sleep 0.5
done
