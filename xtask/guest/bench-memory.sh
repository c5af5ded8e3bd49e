# bench-memory.sh MODE WEIGHT_OF_LARGE LRU STEP_SECS: one run of the two-hog experiment.
. /run/in/lib.sh
# Each page is touched every 6 s or so: the sets are hot.
RATE=40
mode=$1 weight=$2 lru=$3 step_secs=$4

cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
if [ "$lru" = classic ]; then echo n >/sys/kernel/mm/lru_gen/enabled; fi
install_ctlmgr /run/in/ctlmgr.deb


hog small 400 4
hog large 800 8 --label "ctlmgr.weight=$weight"
wait_full small 400
wait_full large 800
ctlmgr mode "$mode" >/dev/null
sleep 5
emit_tail() { tail -n "$1" "$log/$2.json" | sed "s/^{/@{\"step\":$3,\"name\":\"$2\",/"; }
emit_tail 5 small 0
emit_tail 5 large 0

start_pressure 1000 5 "$step_secs"
# The second half of each step is what is reported.
until [ -s "$log/pressure.json" ]; do sleep 0.2; done
for step in 1 2 3 4 5; do
	sleep "$step_secs"
	for name in small large pressure; do emit_tail $((step_secs / 2)) "$name" "$step"; done
	echo "$mode large=$weight $lru step $step: $(tail -n 1 /proc/pressure/memory | cut -d' ' -f1,2)"
done
grep -E '^(pgsteal_kswapd|pgsteal_direct|pswpin|pswpout) ' /proc/vmstat | while read -r key value; do
	echo "@{\"counter\":\"$key\",\"value\":$value}"
done
cpu=$(systemctl show -P CPUUsageNSec ctlmgr.service)
echo "@{\"counter\":\"ctlmgr_cpu_nsec\",\"value\":$cpu}"
systemctl stop lab-pressure.service ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
