# bench-bomb.sh MODE: a service beside a container that runs into its own memory.max again and again.
. /run/in/lib.sh
import lab-hog /run/in/hog
install_ctlmgr /run/in/ctlmgr.deb
ctlmgr mode "$1" >/dev/null
docker run -d --name web --network none --memory-reservation 900m -v "$log:/log" lab-hog \
	/hog --size 900 --rate 40 --threads 4 --out /log/web.json >/dev/null
until [ "$(tail -n 1 "$log/web.json" 2>/dev/null | sed 's/.*"resident_mib":\([0-9]*\).*/\1/')" -ge 900 ] 2>/dev/null; do
	sleep 0.5
done
sleep 5
stolen_now() { awk '/^pgsteal_(kswapd|direct) / { n += $2 } END { print n }' /proc/vmstat; }
stolen=$(stolen_now)
# emit PHASE SECONDS: what web felt in the last seconds, and what the kernel took from anybody since
# the last phase.
emit() {
	tail -n "$2" "$log/web.json" | sed "s/^{/@{\"phase\":\"$1\",\"name\":\"web\",/"
	echo "@{\"counter\":\"stolen_$1\",\"value\":$(($(stolen_now) - stolen))}"
	stolen=$(stolen_now)
}
sleep 30
emit before 30
# One endless line: tail keeps all of it, until the kernel ends that and the shell begins anew.
docker run -d --name bomb --network none --memory 300m --memory-swap 300m busybox \
	sh -c 'while :; do tail /dev/zero; done' >/dev/null
events=/sys/fs/cgroup/ctlmgr.slice/docker-$(docker inspect -f '{{.Id}}' bomb).scope/memory.events
sleep 60
emit during 60
kills=$(sed -n 's/^oom_kill //p' "$events")
echo "@{\"counter\":\"kills_during\",\"value\":$kills}"
docker rm -f bomb >/dev/null
sleep 35
emit after 30
echo "$1: $kills OOM kills inside the bomb"
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
