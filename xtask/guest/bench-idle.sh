# bench-idle.sh count=N secs=S: CPU time of ctlmgrd and systemd-oomd while N containers rest, S seconds
# in each mode. The containers are scopes of that name, so that dockerd's own work is not in the way.
. /run/in/lib.sh
for assignment in "$@"; do eval "${assignment%%=*}=\${assignment#*=}"; done
install_ctlmgr /run/in/ctlmgr.deb
rm /etc/systemd/system/systemd-oomd.service /etc/systemd/system/systemd-oomd.socket
systemctl daemon-reload
systemctl start systemd-oomd.service

slice=/sys/fs/cgroup/ctlmgr.slice
scopes() { find "$slice" -maxdepth 1 -name 'docker-*.scope' 2>/dev/null | wc -l; }
number=0
while [ "$number" -lt "$count" ]; do
	number=$((number + 1))
	systemd-run --quiet --collect --scope --slice=ctlmgr.slice \
		--unit="docker-$(printf %064x "$number").scope" sleep 100000 &
	# A few at a time: the manager is slow here.
	until [ "$(scopes)" -ge $((number - 8)) ]; do sleep 0.2; done
done
until [ "$(scopes)" -ge "$count" ]; do sleep 0.2; done
systemctl set-property --runtime ctlmgr.slice ManagedOOMMemoryPressure=kill ManagedOOMSwap=kill
until [ "$(ctlmgr status --json | grep -c '"kind": "workload"')" -ge "$count" ]; do sleep 1; done

spent() { systemctl show -P CPUUsageNSec "$1"; }
for mode in observe act; do
	ctlmgr mode "$mode" >/dev/null
	# Whatever follows from the change is not what is measured.
	sleep 30
	ours=$(spent ctlmgr.service) theirs=$(spent systemd-oomd.service)
	sleep "$secs"
	ours=$(($(spent ctlmgr.service) - ours)) theirs=$(($(spent systemd-oomd.service) - theirs))
	echo "@{\"counter\":\"ctlmgr_${mode}_nsec\",\"value\":$ours}"
	echo "@{\"counter\":\"oomd_${mode}_nsec\",\"value\":$theirs}"
	echo "$mode: ctlmgrd $((ours / 1000000)) ms, systemd-oomd $((theirs / 1000000)) ms in $secs s"
done
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
