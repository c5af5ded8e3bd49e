# What the demo and the benches share. Lines that start with @ are data for xtask.
set -eu

log=/var/tmp/ctlmgr-lab
rm -rf "$log"
mkdir -p "$log"
chmod 777 "$log"

# An image that holds one static program.
import() {
	tree=$(mktemp -d)
	cp "$2" "$tree/$(basename "$2")"
	tar -C "$tree" -c . | docker import - "$1" >/dev/null
	rm -rf "$tree"
}

install_ctlmgr() {
	DEBIAN_FRONTEND=noninteractive dpkg -i "$1" >/dev/null
	systemctl enable --now ctlmgr.service >/dev/null 2>&1
	until ctlmgr status >/dev/null 2>&1; do sleep 0.2; done
}

# hog NAME MIB THREADS [docker arguments]: a container with its set and promise.
hog() {
	name=$1 mib=$2 threads=$3
	shift 3
	docker run -d --name "$name" --network none --memory-reservation "${mib}m" -v "$log:/log" "$@" \
		lab-hog /hog --size "$mib" --rate "${RATE:-10}" --threads "$threads" --out "/log/$name.json" >/dev/null
}

# Memory outside of any promise: a unit that nobody manages, growing in steps.
start_pressure() {
	systemd-run --quiet --collect --unit=lab-pressure /usr/local/bin/lab-hog \
		--size "$1" --rate "${RATE:-10}" --threads 4 --steps "$2" --step-secs "$3" --out "$log/pressure.json"
}

# Who thrashes keeps the processors busy, emulated ones above all, and that would hide what memory does.
# slice_first: containers before units; $first_shares: whoever is started with it before other containers.
slice_first() { systemctl set-property --runtime ctlmgr.slice CPUWeight=10000; }
slice_as_before() {
	systemctl set-property --runtime ctlmgr.slice CPUWeight=
	rm -f /run/systemd/system.control/ctlmgr.slice.d/50-CPUWeight.conf
	systemctl daemon-reload
}
first_shares="--cpu-shares 262144"

now() { cut -d' ' -f1 /proc/uptime; }
mark() { echo "@{\"mark\":\"$1\",\"uptime\":$(now)}"; }
