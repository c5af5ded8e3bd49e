# record.sh NAME: one recording of ctlmgr at work, a line for each event. What each shows is said where it is replayed,
# in crates/ctlmgr-policy/tests/recorded.rs.
. /run/in/lib.sh
cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
install_ctlmgr /run/in/ctlmgr.deb

# act SETTING…: ctlmgr acts, with these lines of [memory].
act() {
	{ echo '[memory]'; printf '%s\n' "$@"; } >/etc/ctlmgr/config.d/50-lab.toml
	systemctl reload ctlmgr.service
	ctlmgr mode act >/dev/null
}
# record SECONDS: from now on, beside what comes next.
record() {
	ctlmgr record --seconds "$1" "$log/events.jsonl" >/dev/null &
	recorder=$!
}
# run NAME "DOCKER ARGUMENTS" HOG_ARGUMENT…: a container with the load generator in it.
run() {
	name=$1 options=$2
	shift 2
	# shellcheck disable=SC2086
	docker run -d --name "$name" --network none -v "$log:/log" $options lab-hog /hog --out "/log/$name.json" "$@" >/dev/null
}
# await NAME MIB: until it holds so much, page cache among it.
await() {
	stat=/sys/fs/cgroup/ctlmgr.slice/docker-$(docker inspect -f '{{.Id}}' "$1").scope/memory.stat
	until [ "$(awk '$1 == "anon" || $1 == "file" { n += $2 } END { print int(n / 1048576) }' "$stat")" -ge "$2" ]; do sleep 0.5; done
}

burst() {
	act
	hog heavy 600 3 --label ctlmgr.weight=400
	hog light 600 3
	await heavy 600
	await light 600
	record 60
	run third '' --first 300 --size 700 --steps 8 --step-secs 5 --rate 10 --threads 4
}

squeeze() {
	slice_first
	# shellcheck disable=SC2086
	docker run -d --name lab-redis --network none --label ctlmgr.class=critical $first_shares --memory-reservation 157m \
		-v "$log:/log" redis redis-server --save '' --appendonly no --unixsocket /tmp/redis.sock --port 0 >/dev/null
	hog lab-normal 492 4 --label ctlmgr.class=normal
	hog lab-low 492 4 --label ctlmgr.class=low
	hog lab-idle 78 1 --label ctlmgr.class=low
	until docker exec lab-redis redis-cli -s /tmp/redis.sock ping >/dev/null 2>&1; do sleep 0.2; done
	docker exec lab-redis redis-benchmark -s /tmp/redis.sock -t set -d 1000 -r 110000 -n 220000 -P 32 -q >/dev/null 2>&1
	await lab-idle 78
	docker pause lab-idle >/dev/null
	printf '[[rule]]\nname = "lab-redis"\nfloor = "157M"\n' >/etc/ctlmgr/config.d/51-floor.toml
	act
	docker exec -d lab-redis redis-benchmark -s /tmp/redis.sock -t get -r 110000 -n 1000000000 -c 1 -q
	sleep 10
	record 65
	start_pressure 980 4 15
}

needs() {
	act
	run web '--memory-reservation 500m' --size 500 --rate 20 --threads 4
	# What one makes and six have.
	docker run -d --name fork --network none busybox sh -c 'set=$(yes 0123456789abcde | head -c 62914560);
		for i in 1 2 3 4 5 6; do (sleep 100000; echo $set >/dev/null) & done; wait' >/dev/null
	await web 500
	sleep 10
	record 60
	run leak '' --first 800 --size 1500 --live 40 --steps 35 --step-secs 1 --rate 20
}

waste() {
	act 'probe = true'
	run web '--memory-reservation 400m' --size 400 --rate 20 --threads 4
	run hoard '' --size 600 --live 40 --rate 20 --threads 2
	await web 400
	await hoard 600
	record 110
	run worker '' --first 500 --size 900 --steps 10 --step-secs 3 --rate 10 --threads 4
	sleep 60
	systemd-run --quiet --collect --unit=lab-scan sh -c 'while :; do cat /dev/vda >/dev/null; done'
}

used_up() {
	swapoff -a
	act 'kill = ["idle"]' 'kill_grace_secs = 5'
	run web '--memory-reservation 400m --label ctlmgr.class=high' --size 400 --rate 80 --threads 2 --file /log/web.set
	await web 400
	sleep 5
	record 120
	# Page cache counts as available.
	first=$(($(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024 - 400))
	run batch '--label ctlmgr.class=idle' --first "$first" --size $((first + 400)) --steps 200 --step-secs 1 --rate 1 --threads 4
}

files() {
	act
	run first '--memory-reservation 150m' --size 500 --rate 20 --threads 4 --file /log/first.set
	run second '--memory-reservation 150m' --size 500 --rate 20 --threads 4 --file /log/second.set
	await first 500
	await second 500
	record 100
	start_pressure 1000 5 20
}

shrink() {
	echo n >/sys/kernel/mm/lru_gen/enabled
	act
	hog small 400 4
	hog large 800 8
	await small 400
	await large 800
	sleep 10
	record 110
	for mib in 1800 1600 1500 1400 1300; do
		echo "@{\"balloon\":$mib}"
		sleep 20
	done
}

weight() {
	act
	hog web-a 600 3
	hog web-b 600 3
	await web-a 600
	await web-b 600
	echo '@{"balloon":1100}'
	sleep 40
	record 65
	sleep 5
	ctlmgr weight web-a 400 >/dev/null
	sleep 30
	ctlmgr weight web-a 100 >/dev/null
}

idle() {
	# With the rungs below nobody would go short for long.
	act 'freeze = ["idle"]' 'throttle = false' 'harden = false'
	run web '--memory-reservation 900m --label ctlmgr.class=high' --size 900 --rate 80 --threads 8
	await web 900
	record 120
	run batch '--label ctlmgr.class=idle' --size 1500 --rate 40 --threads 8
	sleep 45
	docker rm -f web >/dev/null
}

slice() {
	printf '[Slice]\nMemoryMax=400M\n' >/run/systemd/system/ctlmgr-shop.slice
	systemctl daemon-reload
	act
	run light '--cgroup-parent ctlmgr-shop.slice --memory-reservation 280m --label ctlmgr.weight=100' --size 280 --rate 40 --threads 4
	run heavy '--cgroup-parent ctlmgr-shop.slice --memory-reservation 280m --label ctlmgr.weight=400' --size 280 --rate 40 --threads 4
	record 60
}

"$(echo "$1" | tr - _)"
wait "$recorder"
ctlmgr status
sed 's/^/@/' "$log/events.jsonl"
echo "@{\"counter\":\"events\",\"value\":$(wc -l <"$log/events.jsonl")}"
