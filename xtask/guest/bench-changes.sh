# bench-changes.sh: what comes, goes and changes, one after the other, on a host that acts.
. /run/in/lib.sh
cp /run/in/hog /usr/local/bin/lab-hog
import lab-hog /run/in/hog
install_ctlmgr /run/in/ctlmgr.deb
ctlmgr mode act >/dev/null
hog web-a 600 3
hog web-b 600 3
sleep 25

# change WHAT COMMAND…: does it, says when it began and how long that took, and gives shares time to settle.
exec 3>&1
change() {
	what=$1
	shift
	from=$(date +%s%6N)
	"$@" >/dev/null
	echo "@{\"changed_usec\":$from,\"took_usec\":$(($(date +%s%6N) - from)),\"what\":\"$what\"}"
	sleep 25
}
balloon() { echo "@{\"balloon\":$1}" >&3; }
# start_changing NAME MIB FIRST SIZE SECS: goes from the mean of both sizes, in MiB, to the second one.
start_changing() {
	docker run -d --name "$1" --network none --memory-reservation "$2m" -v "$log:/log" lab-hog \
		/hog --first "$3" --size "$4" --steps 2 --step-secs "$5" --rate 10 --threads 2 --out "/log/$1.json"
}
# It does so by its own clock.
has_set() { until grep -q "\"set_mib\":$2[,}]" "$log/$1.json"; do sleep 0.1; done; }

change "a unit without promise starts and grows to 700 MiB within 10 s" start_pressure 700 2 10
change "a third container starts, 150 MiB" start_changing web-c 300 0 300 30
has_set web-c 300
change "the third grows to 300 MiB" true
change "the promise of web-b is halved by docker update" docker update --memory-reservation 300m web-b
change "the promise of web-b is 600 MiB again" docker update --memory-reservation 600m web-b
change "the third is removed" docker rm -f web-c
change "a fourth starts, 500 MiB" start_changing web-d 500 900 100 60
has_set web-d 100
change "the fourth gives up 400 of them" true
change "the fourth is removed" docker rm -f web-d
change "the unit ends" systemctl stop lab-pressure
change "the machine shrinks to 1100 MiB" balloon 1100
change "web-a weighs 400" ctlmgr weight web-a 400
change "web-a weighs 100 again" ctlmgr weight web-a 100
change "the machine is as large as before" balloon 2048

ctlmgr status
journalctl -u ctlmgr -o json --output-fields=F_PATH,F_KNOB,F_FROM,F_TO --no-pager | grep '"F_TO"' | sed 's/^/@/' || true
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
