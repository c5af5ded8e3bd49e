# bench-memory.sh KEY=VALUE…: one run of some workloads under pressure.
#   members              of NAME:KIND:MIB:PROMISE:RATE, separated by commas; KIND is memory (a hog), files
#                        (a hog whose set is page cache) or redis; PROMISE in MiB; RATE in touches per MiB
#                        and second, of hogs
#   pressure steps step_secs    unit or balloon; MiB at each step, separated by commas; seconds per step
#   policy weight lru swap      how the host is treated; weight of every other member; mglru or classic;
#                               disk, zram, zswap or none
#   setting              a line of [memory], or empty
#   cpu_first            true: redis have the processor before other members, and before units where a unit presses
#   cpu_by_size          true: hogs have the processor by their size, as they use it
#   parts                policy parts: per cent of its set that each member may hold, at each step
. /run/in/lib.sh
for assignment in "$@"; do eval "${assignment%%=*}=\${assignment#*=}"; done

cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
if [ "$lru" = classic ]; then echo n >/sys/kernel/mm/lru_gen/enabled; fi
case $swap in
disk) ;;
none) swapoff -a ;;
zswap) echo 1 >/sys/module/zswap/parameters/enabled ;;
zram)
	swapoff -a
	modprobe zram num_devices=1
	echo 1G >/sys/block/zram0/disksize
	mkswap /dev/zram0 >/dev/null
	swapon /dev/zram0
	;;
esac
install_ctlmgr /run/in/ctlmgr.deb

# each COMMAND: runs it for every member, whose parts are in name, kind, mib, promise, rate and path.
names=
each() {
	for member in $(echo "$members" | tr , ' '); do
		IFS=: read -r name kind mib promise rate <<-END
			$member
		END
		path=$(cat "$log/$name.path" 2>/dev/null || true)
		"$@"
	done
}

start_redis() {
	shares=
	if [ "$cpu_first" = true ]; then
		# Elsewhere dockerd and ctlmgrd would wait for a processor for most of the time, and nobody would gain by that.
		if [ "$pressure" = unit ]; then slice_first; fi
		shares=$first_shares
	fi
	# Client and server on a processor of their own. Elsewhere the guest moves them about, and the pace of one that lacks
	# nothing differs by 6 % from one ten seconds to the next, in place of 2.
	processor=$((1 - ${processor:-1}))
	# shellcheck disable=SC2086
	docker run -d --name "$name" --network none --memory-reservation "${promise}m" --cpuset-cpus "$processor" $shares \
		--label "ctlmgr.weight=$1" -v "$log:/log" redis redis-server --save '' --appendonly no \
		--unixsocket /tmp/redis.sock --port 0 >/dev/null
	until docker exec "$name" redis-cli -s /tmp/redis.sock ping >/dev/null 2>&1; do sleep 0.2; done
	# A value is about a page; after two rounds of random keys six out of seven are there.
	keys=$((mib * 256))
	docker exec "$name" redis-benchmark -s /tmp/redis.sock -t set -d 4000 -r "$keys" -n $((keys * 2)) -P 16 -q >/dev/null 2>&1
	# A thousand requests at a time, some 0.2 s: uptime, requests per second, median and 99th percentile in ms.
	# shellcheck disable=SC2016
	docker exec -d "$name" sh -c 'while :; do
		line=$(redis-benchmark -s /tmp/redis.sock -t get -r '"$keys"' -n 1000 -c 1 --csv | tail -n 1 | tr -d \")
		read -r up rest </proc/uptime
		echo "$up,$line" >>/log/'"$name"'.txt
		sleep 0.2
	done'
	until [ -s "$log/$name.txt" ]; do sleep 0.2; done
}

# start: a container with its set and promise, a hog's thread for every 100 MiB.
weight_now=$weight
start() {
	names="$names $name"
	if [ "$weight_now" = 100 ]; then weight_now=$weight; else weight_now=100; fi
	if [ "$kind" = redis ]; then
		start_redis "$weight_now"
	else
		file=
		if [ "$kind" = files ]; then file="--file /log/$name.set"; fi
		shares=
		if [ "${cpu_by_size:-false}" = true ]; then shares="--cpu-shares $((mib * 2))"; fi
		# shellcheck disable=SC2086
		docker run -d --name "$name" --network none --memory-reservation "${promise}m" $shares \
			--label "ctlmgr.weight=$weight_now" -v "$log:/log" lab-hog /hog --size "$mib" --rate "$rate" \
			--threads $(((mib + 99) / 100)) --out "/log/$name.json" $file >/dev/null
	fi
	echo "/sys/fs/cgroup/ctlmgr.slice/docker-$(docker inspect -f '{{.Id}}' "$name").scope" >"$log/$name.path"
}
each start

stat_bytes() { awk -v key="$2" '$1 == key { n = $2 } END { printf "%.0f", n }' "$1/memory.stat"; }
stat_mib() { echo $(($(stat_bytes "$1" "$2") / 1048576)); }
wait_filled() {
	if [ "$kind" = redis ]; then return; fi
	until [ -s "$log/$name.json" ]; do sleep 0.5; done
	until [ $(($(stat_mib "$path" anon) + $(stat_mib "$path" file))) -ge "$mib" ]; do sleep 0.5; done
}
each wait_filled

# The reservation is in memory.low of each scope already; what the policies add to that:
free_mib() { sed -n 's/^MemFree: *\([0-9]*\).*/\1/p' /proc/meminfo | awk '{ print int($1 / 1024) }'; }
# Soft limits as they were: always from the largest excess over the promise, 25 MiB at a time.
larger_excess() {
	over=$(($(cat "$path/memory.current") / 1048576 - promise))
	if [ "$over" -gt "$most" ]; then most=$over victim=$path; fi
}
exceed() {
	while :; do
		if [ "$(free_mib)" -lt 98 ]; then
			most=0 victim=
			each larger_excess
			if [ -n "$victim" ]; then echo 25M >"$victim/memory.reclaim" 2>/dev/null || true; fi
		fi
		sleep 0.5
	done
}
promised=0
add_promise() { promised=$((promised + promise)); }
each add_promise
case $policy in
plain | parts) ;;
static) systemctl set-property --runtime ctlmgr.slice MemoryLow="${promised}M" ;;
exceed)
	exceed &
	exceeder=$!
	trap 'kill "$exceeder" 2>/dev/null || true' EXIT
	;;
systemd-oomd)
	rm /etc/systemd/system/systemd-oomd.service /etc/systemd/system/systemd-oomd.socket
	systemctl daemon-reload
	systemctl start systemd-oomd.service
	systemctl set-property --runtime ctlmgr.slice ManagedOOMMemoryPressure=kill ManagedOOMSwap=kill
	;;
senpai-*)
	# Its two ways: back off at once when pressure shows, or lower a limit and wait.
	case $policy in *-backoff) backoff=true ;; *) backoff=false ;; esac
	cat >/var/tmp/oomd.json <<-EOF
		{"rulesets": [{"name": "senpai", "detectors": [["always", {"name": "continue", "args": {}}]],
		"actions": [{"name": "senpai", "args": {"cgroup": "ctlmgr.slice/*", "immediate_backoff": "$backoff"}}]}]}
	EOF
	systemd-run --quiet --collect --unit=lab-oomd oomd --config /var/tmp/oomd.json --interval 1
	sleep 2
	systemctl is-active --quiet lab-oomd.service
	;;
act | act-*)
	# What is not named is the default.
	case $policy in act-*) controller=${policy#act-} ;; *) controller= ;; esac
	printf '[memory]\n%s\n%s\n' "${controller:+controller = \"$controller\"}" "$setting" >/etc/ctlmgr/config.d/50-lab.toml
	systemctl reload ctlmgr.service
	ctlmgr mode act >/dev/null
	;;
esac
# A redis differs from second to second; all its paces hang on what it does now.
sleep 33
refaults() { awk '/^workingset_refault/ { n += $2 } END { print n }' "$1/memory.stat"; }
# What a redis did in the last seconds, beside what it did before the pressure.
emit_redis() {
	from=$(awk -v secs="$seconds" '{ print $1 - secs }' /proc/uptime)
	if [ "$step" = 0 ]; then stat_mib "$path" anon >"$log/$name.set_mib"; fi
	tr -d '\r' <"$log/$name.txt" | awk -F, -v from="$from" '$1 > from && $3 > 0 { n++; secs += 1 / $3; p50 += $6; p99 += $8 }
		END { if (n) print n / secs, p50 * 1000 / n, p99 * 1000 / n; else print 0, 0, 0 }' >"$log/$name.now"
	if [ "$step" = 0 ]; then cp "$log/$name.now" "$log/$name.base"; fi
	read -r rate_now p50 p99 <"$log/$name.now"
	read -r base rest <"$log/$name.base"
	pace=$(awk -v now="$rate_now" -v base="$base" 'BEGIN { print (base > 0 ? now / base : 0) }')
	echo "@{\"step\":$step,\"name\":\"$name\",\"pace\":$pace,\"p50_us\":$p50,\"p99_us\":$p99,\"resident_mib\":$(stat_mib "$path" anon),\"set_mib\":$(cat "$log/$name.set_mib")}"
}
# emit: what a member felt in the last seconds, and what it holds.
emit() {
	# Who was killed keeps nothing and does nothing.
	if [ ! -d "$path" ]; then
		echo "@{\"step\":$step,\"name\":\"$name\",\"pace\":0,\"resident_mib\":0,\"set_mib\":1}"
		return
	fi
	if [ "$kind" = redis ]; then
		emit_redis
	else
		tail -n "$seconds" "$log/$name.json" | sed "s/^{/@{\"step\":$step,\"name\":\"$name\",/"
	fi
	# Page cache is not in the hogs' own count of what they hold.
	cached=0
	if [ "$kind" = files ]; then cached=$(stat_mib "$path" file); fi
	echo "@{\"refaults\":$(refaults "$path"),\"cached_mib\":$cached,\"of\":\"$name\",\"step\":\"$step\"}"
}
# emit_host: how much of the last 10 s the host stalled, and pages that went through swap since boot.
emit_host() {
	awk -v step="$step" '/^(some|full)/ { split($2, part, "="); pct[$1] = part[2] }
		/^(pswpin|pswpout) / { pages[$1] = $2 }
		END { printf "@{\"step\":%d,\"name\":\"host\",\"some_pct\":%s,\"full_pct\":%s,\"swapped_in\":%d,\"swapped_out\":%d}\n",
			step, pct["some"], pct["full"], pages["pswpin"], pages["pswpout"] }' /proc/pressure/memory /proc/vmstat
}
# processors: where their time went since this was called last, and how long one takes for the same little loop each time:
# an emulated one is as fast as the machine lets it be.
used_msec() { echo $(($(sed -n 's/^usage_usec //p' "/sys/fs/cgroup/$1/cpu.stat") / 1000)); }
processors() {
	# shellcheck disable=SC2046
	set -- $(awk '/^cpu / { print ($2 + $3 + $4 + $5 + $6 + $7 + $8) * 10, ($5 + $6) * 10 }' /proc/stat) \
		"$(used_msec ctlmgr.slice)" "$(used_msec system.slice)"
	# shellcheck disable=SC2016
	loop=$(sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; times' | awk -F'[ms]' 'NR == 1 { print int($2 * 1000) }')
	echo "$* ${processors_before:-0 0 0 0} $loop" | awk '{ all = $1 - $5; printf "processors: %d %% idle, %d %% in containers, %d %% in units, the loop %d ms\n", \
		100 * ($2 - $6) / all, 100 * ($3 - $7) / all, 100 * ($4 - $8) / all, $9 }'
	processors_before="$*"
}
# Limits by hand: as large a part of its set for each. What is no part of the set comes on top.
beside_set() { echo $(($(cat "$path/memory.current") - $(stat_bytes "$path" anon) - $(stat_bytes "$path" file))) >"$log/$name.beside"; }
limit_part() {
	most=$((mib * 10486 * part + $(cat "$log/$name.beside")))
	over=$(($(cat "$path/memory.current") - most))
	# Reclaim first: a limit below what is held would kill who cannot be reclaimed from in time.
	if [ "$over" -gt 0 ]; then echo "$over" >"$path/memory.reclaim" || true; fi
	echo "$most" >"$path/memory.max"
}
each beside_set
seconds=30
step=0
each emit
emit_host
processors >/dev/null

# The second half of each step is what is reported.
seconds=$((step_secs / 2))
if [ "$pressure" = unit ]; then
	last=${steps##*,} second_step=$(echo "$steps" | cut -d, -f2)
	# Steps are equally far apart.
	apart=$((second_step - ${steps%%,*}))
	systemd-run --quiet --collect --unit=lab-pressure /usr/local/bin/lab-hog --first $((${steps%%,*} - apart)) \
		--size "$last" --rate 40 --threads 4 --steps 5 --step-secs "$step_secs" --out "$log/pressure.json"
	until [ -s "$log/pressure.json" ]; do sleep 0.2; done
fi
for size in $(echo "$steps" | tr , ' '); do
	step=$((step + 1))
	if [ "$policy" = parts ]; then
		part=$(echo "$parts" | cut -d, -f$step)
		each limit_part
	fi
	date +'@{"changed_usec":%s%6N}'
	if [ "$pressure" = balloon ]; then echo "@{\"balloon\":$size}"; fi
	sleep "$step_secs"
	emit_host
	each emit
	if [ "$pressure" = unit ]; then
		tail -n "$seconds" "$log/pressure.json" | sed "s/^{/@{\"step\":$step,\"name\":\"pressure\",/"
	fi
	engine=$(cat /sys/fs/cgroup/system.slice/docker.service/memory.current /sys/fs/cgroup/system.slice/containerd.service/memory.current |
		awk '{ n += $1 } END { print int(n / 1048576) }')
	echo "$names: $policy weight=$weight $lru step $step: $(free_mib) MiB free, $engine MiB in dockerd and containerd, $(tail -n 1 /proc/pressure/memory | cut -d' ' -f1,2)"
	processors
done
grep -E '^(pgsteal_kswapd|pgsteal_direct|pswpin|pswpout) ' /proc/vmstat | while read -r key value; do
	echo "@{\"counter\":\"$key\",\"value\":$value}"
done
case $policy in act*) ctlmgr status ;; esac
# What it wrote, and when.
journalctl -u ctlmgr -o json --output-fields=F_PATH,F_KNOB,F_FROM,F_TO --no-pager | grep '"F_TO"' | sed 's/^/@/' || true
cpu=$(systemctl show -P CPUUsageNSec ctlmgr.service)
echo "@{\"counter\":\"ctlmgr_cpu_nsec\",\"value\":$cpu}"
# How soon dockerd answers on such a host, once the client itself is in memory, and with its part of the processors; on
# some it may never.
systemctl set-property --runtime ctlmgr.slice CPUWeight=100
timeout 60 docker context ls >/dev/null || true
asked=$(date +%s%3N)
if timeout 60 docker ps >/dev/null; then
	echo "@{\"counter\":\"docker_ps_msec\",\"value\":$(($(date +%s%3N) - asked))}"
fi
systemctl stop lab-pressure.service 2>/dev/null || true
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
