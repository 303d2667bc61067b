#!/bin/sh
# The work of a leader, run by: WORKER=a fenceproxy run --election nightly -- ./job.sh
# Every psql presents the token that fenceproxy run has put into the environment.
export PGOPTIONS="-c fence.election=$FENCE_ELECTION -c fence.token=$FENCE_TOKEN"
trap 'exit 0' INT TERM
order=0
echo "$WORKER leads with number $FENCE_NUMBER"
while :; do
	order=$((order + 1))
	echo "$WORKER begins order $order"
	sleep 0.5 # an order takes a moment
	if psql -qX -c "INSERT INTO journal (worker) VALUES ('$WORKER')" 2>&1; then
		echo "$WORKER wrote order $order"
	else
		sleep 1
	fi
done
