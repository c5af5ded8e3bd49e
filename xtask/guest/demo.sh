# demo.sh MODE: redis, two hogs and an idle container under rising pressure.
. "${LAB:-/run/in}/lib.sh"
mode=$1
in=${LAB:-/run/in}
total=$(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))
# Sizes as parts of the machine's memory, in MiB.
redis=$((total * 8 / 100)) normal=$((total * 25 / 100)) low=$((total * 25 / 100)) idle=$((total * 4 / 100))
pressure=$((total * 50 / 100))
keys=$((redis * 700))
step_secs=${STEP_SECS:-18}

loops=
# However this ends, the machine is as it was.
tidy_up() {
	# shellcheck disable=SC2086
	[ -z "$loops" ] || kill $loops 2>/dev/null || true
	systemctl stop lab-pressure.service 2>/dev/null || true
	for name in lab-redis lab-normal lab-low lab-idle; do docker rm -f "$name" >/dev/null 2>&1 || true; done
	docker rmi -f lab-hog >/dev/null 2>&1 || true
	slice_as_before
	rm -f /etc/ctlmgr/config.d/50-lab.toml /usr/local/bin/lab-hog
	dpkg --purge ctlmgr >/dev/null 2>&1 || true
	rm -rf "$log" "${hog_tree:-}"
}
trap tidy_up EXIT
trap 'exit 130' INT TERM HUP

install -m 755 "$in/hog" /usr/local/bin/lab-hog
hog_tree=$(mktemp -d)
install -m 755 "$in/hog" "$hog_tree/hog"
import lab-hog "$hog_tree/hog"
if ! docker image inspect redis >/dev/null 2>&1; then
	echo "a container image called redis is needed: docker pull redis"
	exit 1
fi
install_ctlmgr "$in/ctlmgr.deb"
echo "--- ctlmgr is installed and $(ctlmgr mode | tr -d '\n'): nothing was touched"

# Redis has the processor first, with ctlmgr and without: what is left to slow it down is memory.
slice_first
# shellcheck disable=SC2086
docker run -d --name lab-redis --network none --label ctlmgr.class=critical $first_shares \
	--memory-reservation "${redis}m" -v "$log:/log" redis redis-server --save '' --appendonly no \
	--unixsocket /tmp/redis.sock --port 0 >/dev/null
# Besides its weight, redis gets a floor: memory that it keeps in any case.
printf '[[rule]]\nname = "lab-redis"\nfloor = "%sM"\n' "$redis" >/etc/ctlmgr/config.d/50-lab.toml
systemctl reload ctlmgr.service
hog lab-normal "$normal" 4 --label ctlmgr.class=normal
hog lab-low "$low" 4 --label ctlmgr.class=low
hog lab-idle "$idle" 1 --label ctlmgr.class=low
until docker exec lab-redis redis-cli -s /tmp/redis.sock ping >/dev/null 2>&1; do sleep 0.2; done
docker exec lab-redis redis-benchmark -s /tmp/redis.sock -t set -d 1000 -r "$keys" -n $((keys * 2)) -P 32 -q >/dev/null 2>&1
for name in lab-normal lab-low lab-idle; do until [ -s "$log/$name.json" ]; do sleep 0.2; done; done
sleep 3
# An idle container does nothing with its memory.
docker pause lab-idle >/dev/null
ctlmgr mode "$mode" >/dev/null

# A client that never stops, and the server's own count of commands once a second; both inside
# the container, so that a busy dockerd does not disturb the measurement.
docker exec -d lab-redis redis-benchmark -s /tmp/redis.sock -t get -r "$keys" -n 1000000000 -c 1 -q
docker exec -d lab-redis sh -c 'while :; do
	redis-cli -s /tmp/redis.sock info stats | while read -r line; do
		case $line in total_commands_processed:*)
			read -r up rest </proc/uptime
			echo "$up ${line#*:}" >>/log/redis.txt ;;
		esac
	done
	sleep 1
done'
redis_rates() {
	tr -d '\r' <"$log/redis.txt" | awk 'NR > 1 && $1 > t {
		printf "@{\"name\":\"lab-redis\",\"uptime\":%s,\"rate\":%d}\n", $1, ($2 - n) / ($1 - t) } { t = $1; n = $2 }'
}
hold() {
	while :; do
		for name in lab-redis lab-normal lab-low lab-idle; do
			eval "path=\$path_$(echo $name | tr - _)"
			echo "@{\"name\":\"$name\",\"uptime\":$(now),\"held_bytes\":$(cat "$path/memory.current"),\"swap_bytes\":$(cat "$path/memory.swap.current")}"
		done
		echo "@{\"name\":\"pressure\",\"uptime\":$(now),\"held_bytes\":$(cat /sys/fs/cgroup/system.slice/lab-pressure.service/memory.current 2>/dev/null || echo 0),\"swap_bytes\":0}"
		sleep 1.5
	done
}
pace() {
	while :; do
		sleep 1.5
		for name in lab-normal lab-low; do
			echo "@{\"name\":\"$name\",\"uptime\":$(now),\"rate\":$(tail -n 1 "$log/$name.json" | sed 's/.*"touches":\([0-9]*\).*/\1/')}"
		done
	done
}
for name in lab-redis lab-normal lab-low lab-idle; do
	id=$(docker inspect -f '{{.Id}}' "$name")
	eval "path_$(echo $name | tr - _)=\$(find /sys/fs/cgroup -type d -name \"*\$id*\" | head -n 1)"
done
hold & loops=$!
pace & loops="$loops $!"
mark quiet
sleep 12
echo "--- before pressure ($mode)"
ctlmgr status
mark pressure
start_pressure "$pressure" 4 "$step_secs"
for step in 1 2 3 4; do
	sleep "$step_secs"
	mark "step $step"
	echo "    $mode: $((pressure * step / 4)) MiB of pressure"
done
sleep 8
mark full
echo "--- under pressure ($mode)"
ctlmgr status
ctlmgr why lab-redis | head -n 1
ctlmgr why lab-low | head -n 1
systemctl stop lab-pressure.service
mark released
sleep 15
echo "--- after pressure ($mode)"
ctlmgr status
mark end
redis_rates
echo "--- ctlmgr stops"
systemctl stop ctlmgr.service
ctlmgr diff
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
