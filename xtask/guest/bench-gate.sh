# bench-gate.sh ROUNDS: what dockerd's clients feel of being asked about, in pairs: without, asked, gated.
. /run/in/lib.sh
install_ctlmgr /run/in/ctlmgr.deb
ctlmgr mode --job starts act >/dev/null

# emit MODE WHAT COUNT COMMAND…: milliseconds that a command takes, in the mean of some.
emit() {
	mode=$1 what=$2 count=$3
	shift 3
	began=$(date +%s%N)
	for _ in $(seq "$count"); do "$@" >/dev/null; done
	echo "@{\"mode\":\"$mode\",\"what\":\"$what\",\"us\":$((($(date +%s%N) - began) / count / 1000))}"
}
measure() {
	emit "$1" ps 20 docker ps
	emit "$1" run 5 docker run --rm --network none busybox true
}
measure warm
for _ in $(seq "$1"); do
	measure without
	ctlmgr docker enable >/dev/null
	measure asked
	ctlmgr docker disable >/dev/null
done
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
