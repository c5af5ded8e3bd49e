# bench-placement.sh edges=CALLER:CALLEE:BYTES:PER_SECOND,… repin=N: services that talk over a docker network.
. /run/in/lib.sh
for setting in "$@"; do eval "${setting%%=*}='${setting#*=}'"; done
install_ctlmgr /run/in/ctlmgr.deb
printf '[place]\ntraffic = "on"\nlearn_secs = 10\ncool_down_secs = 10\nfill = "10%%"\n' >/etc/ctlmgr/config.d/50-place.toml
systemctl restart ctlmgr.service
import lab-talk /run/in/talk
docker network create town >/dev/null
# Callees before their callers.
services=$(echo "$edges" | tr ',' '\n' | awk -F: '{print $2, $1}' | tsort)
address() { docker inspect -f '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' "$1"; }
calls_of() { echo "$edges" | tr ',' '\n' | grep "^$1:" || true; }

# start [OPTION]: all services, callees before their callers.
start() {
	for s in $services; do
		calls=
		for call in $(calls_of "$s"); do
			callee=$(echo "$call" | cut -d: -f2)
			calls="$calls --call $(address "$callee"):7000:$(echo "$call" | cut -d: -f3,4)"
		done
		# shellcheck disable=SC2086
		docker run -d --name "$s" --network town lab-talk /talk --port 7000 $calls "$@" >/dev/null
	done
}
json() { tr -d '\n ' | sed "s/^/@{\"$1\":/; s/\$/}\n/"; }
shown() { ctlmgr place show --json | json "$1"; }

# First what is counted, beside what was sent.
until [ "$(ctlmgr place graph --json | grep -c '"traffic": "on"')" = 1 ]; do sleep 1; done
start --seconds 40
for s in $services; do
	n=$(calls_of "$s" | wc -l)
	[ "$n" = 0 ] && continue
	until docker logs --tail 1 "$s" | grep -q '"final":true'; do sleep 1; done
	docker logs --tail "$n" "$s" | sed "s/^{/@{\"truth\":\"$s\",/" >>"$log/truth"
	for call in $(calls_of "$s"); do
		echo "@{\"caller\":\"$s\",\"callee\":\"$(echo "$call" | cut -d: -f2)\",\"address\":\"$(address "$(echo "$call" | cut -d: -f2)")\"}"
	done
done
# Two readings after the last byte.
sleep 12
cat "$log/truth"
ctlmgr place graph --json | json graph
# shellcheck disable=SC2086
docker rm -f $services >/dev/null

# Then where they run, and what that changes.
start
counts() {
	for s in $services; do
		pid=$(docker inspect -f '{{.State.Pid}}' "$s")
		cat /proc/"$pid"/task/*/status /proc/"$pid"/task/*/sched 2>/dev/null
	done | awk -v phase="$1" '/ctxt_switches/ {c += $2} /nr_migrations/ {m += $3}
		END {printf "@{\"counts\":\"%s\",\"switches\":%d,\"migrations\":%d}\n", phase, c, m}'
}
sleep 60
counts before-begin
sleep 30
counts before-end
shown before
ctlmgr mode --job place act >/dev/null
sleep 20
shown acting
ctlmgr place graph --json | json rates
counts after-begin
sleep 30
counts after-end
for s in $services; do
	id=$(docker inspect -f '{{.Id}}' "$s")
	echo "@{\"service\":\"$s\",\"effective\":\"$(cat "$(find /sys/fs/cgroup -type d -name "*$id*" | head -n 1)/cpuset.cpus.effective")\"}"
done
ctlmgr mode --job place observe >/dev/null
# shellcheck disable=SC2086
docker rm -f $services >/dev/null

# Many at once.
for i in $(seq "$repin"); do
	docker run -d --name "many-$i" --network none --label "ctlmgr.place.group=g$((i % 4))" busybox sleep 100000 >/dev/null
done
sleep 20
since=$(date +%s)
ctlmgr mode --job place act >/dev/null
pinned() { journalctl -u ctlmgr.service -o short-unix --since "@$since" | grep 'cpuset.cpus: all -> '; }
until [ "$(pinned | wc -l)" -ge "$repin" ]; do sleep 1; done
# Each once.
sleep 10
journalctl -u ctlmgr.service -o cat --since "@$since" |
	sed -n "s/^\([0-9]*\) lists of processors written in \([0-9]*\) ms.*/\1 \2/p" |
	awk -v n="$(pinned | wc -l)" '{ms += $2} END {printf "@{\"pinned\":%d,\"ms\":%d}\n", n, ms}'
systemctl stop ctlmgr.service
ctlmgr diff --json | json diff
