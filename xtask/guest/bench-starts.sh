# bench-starts.sh KEY=VALUE…: some containers of five classes with fixed work each, started in one way.
#   policy        solo, all, fixed-N, delay-SECS, batches, offline, online, patient
#                 (the gate with a longest wait of 15 minutes)
#   per_class     containers of each class
#   learned       true: ctlmgr is told no characters, one start of each class teaches it before
#   work          how much each does, in parts of about 4 s alone
. /run/in/lib.sh
for assignment in "$@"; do eval "${assignment%%=*}=\${assignment#*=}"; done
install_ctlmgr /run/in/ctlmgr.deb
disk=$(readlink -f /dev/disk/by-id/virtio-data)

# Classes of the paper's Table 4: three of fio, one that writes as a database does, one that writes and
# compacts as an LSM tree does. Each has 40 MiB of the disk to itself.
arguments() {
	common="--filename=$disk --offset=$2 --size=40m --direct=1 --ioengine=psync --minimal --randrepeat=1"
	case $1 in
	rr) echo "--name=j $common --rw=randread --bs=4k --io_size=$((work * 2))m" ;;
	rw) echo "--name=j $common --rw=randwrite --bs=4k --io_size=$((work * 2))m" ;;
	sw) echo "--name=j $common --rw=write --bs=128k --io_size=$((work * 32))m" ;;
	db) echo "--name=j $common --rw=randwrite --bs=16k --fdatasync=8 --io_size=$((work * 6))m" ;;
	lsm) echo "--name=w $common --rw=write --bs=128k --io_size=$((work * 21))m" \
		"--name=r $common --rw=read --bs=128k --io_size=$((work * 11))m --stonewall" ;;
	esac
}
character() {
	case $1 in
	rr) echo random-read ;;
	rw | db) echo random-write ;;
	sw | lsm) echo sequential-write ;;
	esac
}

classes="rr rw sw db lsm"
# create CLASS NUMBER OFFSET [OPTION…]
create() {
	what=$1 called=$1-$2 at=$3
	shift 3
	# shellcheck disable=SC2046
	docker create --name "$called" --network none --device "$disk" "$@" \
		--label com.docker.compose.project=bench --label "com.docker.compose.service=$what" \
		fio fio $(arguments "$what" "$at") >/dev/null
}
# learn_all CLASSES: what is known of starts is all that these teach.
learn_all() {
	for class in $classes; do
		create "$class" 0 0
		docker start "$class-0" >/dev/null
		docker wait "$class-0" >/dev/null
	done
	until [ "$(ctlmgr profile list --json | grep -c '"key"')" -ge 5 ]; do sleep 0.5; done
}
is_gated=false
case $policy in online | patient) is_gated=true ;; esac
if [ "$policy" = patient ]; then
	printf '[starts]\nmax_wait_secs = 900\n' >/etc/ctlmgr/config.d/50-lab.toml
	systemctl reload ctlmgr
fi
if [ "$learned" = true ]; then
	case $policy in
	online | patient | batches | offline)
		learn_all
		ctlmgr profile list
		;;
	esac
fi
names= offset=0
for number in $(seq "$per_class"); do
	for class in $classes; do
		if [ "$policy" = solo ] || [ "$learned" = true ]; then
			create "$class" "$number" "$offset"
		else
			create "$class" "$number" "$offset" --label "ctlmgr.batch.class=$(character "$class")"
		fi
		names="$names $class-$number"
		offset=$((offset + 40 * 1048576))
	done
done
sync

finish() { for name in $names; do docker wait "$name" >/dev/null; done; }
# What the planner is told: names, where ctlmgr has learned what they are like; else the characters of the classes,
# and what ctlmgr says that they cost each other.
plan() {
	containers=
	if [ "$learned" = true ]; then
		for name in $names; do containers="$containers,{\"name\":\"$name\"}"; done
		printf '{"max_batch":5,"containers":[%s]}\n' "${containers#,}"
		return
	fi
	for class in $classes; do
		bin=$(character "$class")
		for name in $names; do
			case $name in "$class"-*) containers="$containers,{\"name\":\"$name\",\"bin\":\"$bin\"}" ;; esac
		done
	done
	ctlmgr batch penalties | tr -d '*' | awk -v containers="${containers#,}" '
		NR > 1 && NF == 6 { bins = bins ",\"" $1 "\""; rows = rows ",[" $2 "," $3 "," $4 "," $5 "," $6 "]" }
		END { printf "{\"max_batch\":5,\"bins\":[%s],\"penalty\":[%s],\"containers\":[%s]}\n",
			substr(bins, 2), substr(rows, 2), containers }'
}
began=$(date +%s.%N)
case $policy in
solo)
	for name in $names; do
		docker start "$name" >/dev/null
		docker wait "$name" >/dev/null
	done
	;;
all | online | patient)
	if $is_gated; then
		ctlmgr docker enable
		ctlmgr mode --job starts act >/dev/null
		began=$(date +%s.%N)
	fi
	for name in $names; do docker start "$name" >/dev/null & done
	wait
	finish
	;;
fixed-*)
	# shellcheck disable=SC2086
	printf '%s\n' $names | xargs -P "${policy#fixed-}" -I{} sh -c 'docker start {} >/dev/null; docker wait {} >/dev/null'
	;;
delay-*)
	for name in $names; do
		docker start "$name" >/dev/null &
		sleep "${policy#delay-}"
	done
	wait
	finish
	;;
batches | offline)
	strict=
	if [ "$policy" = batches ]; then strict=--strict; fi
	plan >/var/tmp/plan.json
	cat /var/tmp/plan.json
	# shellcheck disable=SC2086
	ctlmgr batch run $strict /var/tmp/plan.json
	finish
	;;
esac
ended=$(date +%s.%N)
for name in $names; do
	read -r from to status <<-EOF
		$(docker inspect -f '{{.State.StartedAt}} {{.State.FinishedAt}} {{.State.ExitCode}}' "$name")
	EOF
	awk -v from="$(date -d "$from" +%s.%N)" -v to="$(date -d "$to" +%s.%N)" -v began="$began" -v status="$status" \
		-v name="$name" 'BEGIN { printf "@{\"name\":\"%s\",\"class\":\"%s\",\"secs\":%.2f,\"since\":%.2f,\"status\":%d}\n",
			name, substr(name, 1, index(name, "-") - 1), to - from, from - began, status }'
done
awk -v from="$began" -v to="$ended" 'BEGIN { printf "@{\"makespan\":\"%.1f\"}\n", to - from }'
if [ "$policy" = solo ]; then
	until [ "$(ctlmgr profile list --json | grep -c '"key"')" -ge 5 ]; do sleep 0.5; done
	ctlmgr profile list
	ctlmgr profile list --json | tr -d '\n ' | sed 's/^/@{"profiles":/; s/$/}\n/'
fi
if $is_gated; then
	ctlmgr queue
	ctlmgr docker disable
fi
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
