# bench-memory.sh KEY=VALUE…: one run of two hogs under pressure. Lists are separated by commas.
#   names sizes promises rates   of the two; MiB, MiB, touches per MiB and second
#   files                        1: their sets are files
#   pressure steps step_secs     unit or balloon; MiB at each step; seconds per step
#   policy weight lru            how the host is treated; weight of the second; mglru or classic
#   setting                      a line of [memory], or empty
. /run/in/lib.sh
for assignment in "$@"; do eval "${assignment%%=*}=\${assignment#*=}"; done
first=${names%,*} second=${names#*,}

cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
if [ "$lru" = classic ]; then echo n >/sys/kernel/mm/lru_gen/enabled; fi
install_ctlmgr /run/in/ctlmgr.deb

# start NAME SIZE PROMISE RATE WEIGHT: a hog with its set, a thread per 100 MiB.
start() {
	file=
	if [ "$files" = 1 ]; then file="--file /log/$1.set"; fi
	# shellcheck disable=SC2086
	docker run -d --name "$1" --network none --memory-reservation "${3}m" --label "ctlmgr.weight=$5" \
		-v "$log:/log" lab-hog /hog --size "$2" --rate "$4" --threads $((($2 + 99) / 100)) \
		--out "/log/$1.json" $file >/dev/null
}
start "$first" "${sizes%,*}" "${promises%,*}" "${rates%,*}" 100
start "$second" "${sizes#*,}" "${promises#*,}" "${rates#*,}" "$weight"

slice=/sys/fs/cgroup/ctlmgr.slice
scope() { echo "$slice/docker-$(docker inspect -f '{{.Id}}' "$1").scope"; }
path_first=$(scope "$first") path_second=$(scope "$second")
stat_mib() { awk -v key="$2" '$1 == key { print int($2 / 1048576) }' "$1/memory.stat"; }
# Page cache is not in the hogs' own count of what they hold.
cached() { if [ "$files" = 1 ]; then stat_mib "$1" file; else echo 0; fi; }
until [ -s "$log/$first.json" ] && [ -s "$log/$second.json" ]; do sleep 0.5; done
wait_filled() {
	until [ $(($(stat_mib "$1" anon) + $(stat_mib "$1" file))) -ge "$2" ]; do sleep 0.5; done
}
wait_filled "$path_first" "${sizes%,*}"
wait_filled "$path_second" "${sizes#*,}"

# The reservation is in memory.low of each scope already; what the policies add to that:
free_mib() { sed -n 's/^MemFree: *\([0-9]*\).*/\1/p' /proc/meminfo | awk '{ print int($1 / 1024) }'; }
# Soft limits as they were: always from the largest excess over the promise, 25 MiB at a time.
exceed() {
	while :; do
		if [ "$(free_mib)" -lt 98 ]; then
			over_a=$(($(cat "$path_first/memory.current") / 1048576 - $1))
			over_b=$(($(cat "$path_second/memory.current") / 1048576 - $2))
			if [ "$over_a" -ge "$over_b" ]; then most=$over_a victim=$path_first; else most=$over_b victim=$path_second; fi
			if [ "$most" -gt 0 ]; then echo 25M >"$victim/memory.reclaim" 2>/dev/null || true; fi
		fi
		sleep 0.5
	done
}
case $policy in
plain) ;;
static) systemctl set-property --runtime ctlmgr.slice MemoryLow=$((${promises%,*} + ${promises#*,}))M ;;
exceed)
	exceed "${promises%,*}" "${promises#*,}" &
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
sleep 5
refaults() { awk '/^workingset_refault/ { n += $2 } END { print n }' "$1/memory.stat"; }
# emit STEP: what both felt in the last seconds, and what they hold.
emit() {
	for name in "$first" "$second"; do
		if [ "$name" = "$first" ]; then path=$path_first; else path=$path_second; fi
		# Who was killed keeps nothing and does nothing.
		if [ ! -d "$path" ]; then
			echo "@{\"step\":$1,\"name\":\"$name\",\"pace\":0,\"resident_mib\":0,\"set_mib\":1}"
			continue
		fi
		tail -n "$seconds" "$log/$name.json" | sed "s/^{/@{\"step\":$1,\"name\":\"$name\",/"
		echo "@{\"refaults\":$(refaults "$path"),\"cached_mib\":$(cached "$path"),\"of\":\"$name\",\"step\":\"$1\"}"
	done
}
seconds=5
emit 0

# The second half of each step is what is reported.
seconds=$((step_secs / 2))
step=0
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
	if [ "$pressure" = balloon ]; then echo "@{\"balloon\":$size}"; fi
	sleep "$step_secs"
	emit "$step"
	if [ "$pressure" = unit ]; then
		tail -n "$seconds" "$log/pressure.json" | sed "s/^{/@{\"step\":$step,\"name\":\"pressure\",/"
	fi
	echo "$names $policy weight=$weight $lru step $step: $(free_mib) MiB free, $(tail -n 1 /proc/pressure/memory | cut -d' ' -f1,2)"
done
grep -E '^(pgsteal_kswapd|pgsteal_direct|pswpin|pswpout) ' /proc/vmstat | while read -r key value; do
	echo "@{\"counter\":\"$key\",\"value\":$value}"
done
case $policy in act*) ctlmgr status ;; esac
cpu=$(systemctl show -P CPUUsageNSec ctlmgr.service)
echo "@{\"counter\":\"ctlmgr_cpu_nsec\",\"value\":$cpu}"
systemctl stop lab-pressure.service 2>/dev/null || true
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
