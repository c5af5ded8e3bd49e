# bench-bomb.sh MODE: a service and a database beside a container that runs into its own memory.max again and again.
. /run/in/lib.sh
import lab-hog /run/in/hog
install_ctlmgr /run/in/ctlmgr.deb
ctlmgr mode "$1" >/dev/null
docker run -d --name web --network none --memory-reservation 900m -v "$log:/log" lab-hog \
	/hog --size 900 --rate 40 --threads 4 --out /log/web.json >/dev/null
until [ "$(tail -n 1 "$log/web.json" 2>/dev/null | sed 's/.*"resident_mib":\([0-9]*\).*/\1/')" -ge 900 ] 2>/dev/null; do
	sleep 0.5
done
# database FIO_OPTION…: requests of 16 KiB past the page cache, one after the other, of ten seven read; what is written is
# made sure of after every sixteenth; two hundred in a second.
database() {
	docker run --rm --network none --memory-reservation 100m -v "$log:/log" fio fio --name=db --filename=/log/db.set \
		--size=256m --rw=randrw --bs=16k --direct=1 --fsync=16 --ioengine=psync --rate_iops=140,60 --rwmixread=70 \
		--thread "$@" >/dev/null
}
database --create_only=1
sync
sleep 5
stolen_now() { awk '/^pgsteal_(kswapd|direct) / { n += $2 } END { print n }' /proc/vmstat; }
stolen=$(stolen_now)
# phase NAME SECONDS: what both felt, and what the kernel took from anybody since the last phase.
phase() {
	database --time_based --runtime="$2" --output-format=json --output="/log/db-$1.json"
	tail -n "$2" "$log/web.json" | sed "s/^{/@{\"phase\":\"$1\",\"name\":\"web\",/"
	tr -d '\n' <"$log/db-$1.json" | sed "s/^/@{\"phase\":\"$1\",\"database\":/; s/\$/}\n/"
	echo "@{\"counter\":\"stolen_$1\",\"value\":$(($(stolen_now) - stolen))}"
	stolen=$(stolen_now)
}
phase before 30
# One endless line: tail keeps all of it, until the kernel ends that and the shell begins anew.
docker run -d --name bomb --network none --memory 300m --memory-swap 300m busybox \
	sh -c 'while :; do tail /dev/zero; done' >/dev/null
events=/sys/fs/cgroup/ctlmgr.slice/docker-$(docker inspect -f '{{.Id}}' bomb).scope/memory.events
phase during 60
kills=$(sed -n 's/^oom_kill //p' "$events")
echo "@{\"counter\":\"kills_during\",\"value\":$kills}"
docker rm -f bomb >/dev/null
sleep 5
phase after 30
echo "$1: $kills OOM kills inside the bomb"
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
