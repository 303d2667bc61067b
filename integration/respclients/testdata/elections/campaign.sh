# Campaigns with curl, and writes with redis-cli. No secret is among the arguments of either.
set -euo pipefail
dir=$1

call() { # PATH, and the body from standard input for a POST
	local body=()
	[ "$1" = POST ] && body=(-d @-)
	curl -sS --fail-with-body -X "$1" -H "@$dir/headers" "${body[@]}" "$API$2"
}
field() { sed -E "s/.*\"$1\":\"?([^\",}]*).*/\1/"; }
write() { # on one connection, for as long as the shell lives
	printf 'FENCE BIND %s %s\nSET written:%s %s\n' "$ELECTION" "$token" "$ELECTION" "$NAME" |
		redis-cli -h "$HOST" -p "$PORT" | grep . | tail -1 | sed -E 's/^OK$/wrote/; s/^([A-Z]+) .*/refused \1/'
}

(umask 077; printf 'Authorization: Bearer %s\nContent-Type: application/json\n' "$API_TOKEN" >"$dir/headers")
while won=$(call POST /acquire <<<"{\"owner\": \"$NAME\", \"ttl_ms\": 60000}"); [ "$(field outcome <<<"$won")" != acquired ]; do
	echo "busy $(field owner <<<"$won")"
	call GET "/watch?number=$(field number <<<"$won")" >/dev/null
done
token=$(field token <<<"$won")
echo "leads $(field number <<<"$won")"
write
read -r _
call POST /resign <<<"{\"token\": \"$token\"}" | field outcome
read -r _
write
