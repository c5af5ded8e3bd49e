# bench-memory.sh SCENE POLICY WEIGHT_OF_SECOND LRU STEP_SECS SETTING: one run of two hogs under
# pressure; the setting is a line of [memory], or empty.
. /run/in/lib.sh
scene=$1 policy=$2 weight=$3 lru=$4 step_secs=$5 setting=$6

# Size in MiB and touches per MiB and second of each hog; at 40 a page is touched every 6 s or so.
case $scene in
sizes) names="small large" sizes="400 800" rates="40 40" ;;
heat) names="cold hot" sizes="500 500" rates="10 40" ;;
esac
first=${names% *} second=${names#* }

cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
if [ "$lru" = classic ]; then echo n >/sys/kernel/mm/lru_gen/enabled; fi
install_ctlmgr /run/in/ctlmgr.deb

RATE=${rates% *} hog "$first" "${sizes% *}" 4
RATE=${rates#* } hog "$second" "${sizes#* }" 8 --label "ctlmgr.weight=$weight"
wait_full "$first" "${sizes% *}"
wait_full "$second" "${sizes#* }"

# The reservation is in memory.low of each scope already; what the policies add to that:
slice=/sys/fs/cgroup/ctlmgr.slice
scope() { echo "$slice/docker-$(docker inspect -f '{{.Id}}' "$1").scope"; }
free_mib() { sed -n 's/^MemFree: *\([0-9]*\).*/\1/p' /proc/meminfo | awk '{ print int($1 / 1024) }'; }
# Soft limits as they were: always from the largest excess over the promise, 25 MiB at a time.
exceed() {
	a=$(scope "$first") b=$(scope "$second")
	while :; do
		if [ "$(free_mib)" -lt 98 ]; then
			over_a=$(($(cat "$a/memory.current") / 1048576 - $1)) over_b=$(($(cat "$b/memory.current") / 1048576 - $2))
			if [ "$over_a" -ge "$over_b" ]; then most=$over_a victim=$a; else most=$over_b victim=$b; fi
			if [ "$most" -gt 0 ]; then echo 25M >"$victim/memory.reclaim" 2>/dev/null || true; fi
		fi
		sleep 0.5
	done
}
case $policy in
plain) ;;
static) systemctl set-property --runtime ctlmgr.slice MemoryLow=$((${sizes% *} + ${sizes#* }))M ;;
exceed) # Promised half of what they use, so that both exceed.
	exceed $((${sizes% *} / 2)) $((${sizes#* } / 2)) &
	exceeder=$!
	trap 'kill "$exceeder" 2>/dev/null || true' EXIT
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
refaults() { awk '/^workingset_refault/ { n += $2 } END { print n }' "$(scope "$1")/memory.stat"; }
emit_tail() { tail -n "$1" "$log/$2.json" | sed "s/^{/@{\"step\":$3,\"name\":\"$2\",/"; }
emit_refaults() {
	for name in $names; do echo "@{\"refaults\":$(refaults "$name"),\"of\":\"$name\",\"step\":\"$1\"}"; done
}
emit_tail 5 "$first" 0
emit_tail 5 "$second" 0
emit_refaults 0

RATE=40 start_pressure 1000 5 "$step_secs"
# The second half of each step is what is reported.
until [ -s "$log/pressure.json" ]; do sleep 0.2; done
for step in 1 2 3 4 5; do
	sleep "$step_secs"
	for name in $names pressure; do emit_tail $((step_secs / 2)) "$name" "$step"; done
	emit_refaults "$step"
	echo "$scene $policy weight=$weight $lru step $step: $(tail -n 1 /proc/pressure/memory | cut -d' ' -f1,2)"
done
grep -E '^(pgsteal_kswapd|pgsteal_direct|pswpin|pswpout) ' /proc/vmstat | while read -r key value; do
	echo "@{\"counter\":\"$key\",\"value\":$value}"
done
case $policy in act*) ctlmgr status ;; esac
cpu=$(systemctl show -P CPUUsageNSec ctlmgr.service)
echo "@{\"counter\":\"ctlmgr_cpu_nsec\",\"value\":$cpu}"
systemctl stop lab-pressure.service ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
