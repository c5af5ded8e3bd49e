# bench-gate-here.sh ROUNDS: what a question to the plugin costs on this machine's processor, which nothing emulates.
# A dockerd of its own, with mounts, network and directories of its own, that never runs a container.
set -e
for program in dockerd docker; do
	command -v $program >/dev/null || { echo "$program is not installed (Debian: docker.io)"; exit 1; }
done
[ -n "$APART" ] || APART=1 exec unshare --mount --net sh "$0" "$@"

asked= dockerd= made=
# However it ends, nothing is left on this machine.
end() {
	set +e
	[ -z "$asked" ] || { kill -CONT $asked; kill $asked; }
	[ -z "$dockerd" ] || { kill $dockerd; wait $dockerd; }
	umount /etc/docker
	[ -z "$made" ] || rmdir /etc/docker
}
trap end EXIT
trap 'exit 130' INT TERM
mount -t tmpfs none /run
made=$(mkdir /etc/docker 2>/dev/null && echo yes || true)
mount -t tmpfs none /etc/docker
export DOCKER_HOST=unix:///run/docker.sock
dpkg-deb --extract "$LAB/ctlmgr.deb" /run/package
mkdir -p /run/docker/plugins /run/empty
plugin=$(find /run/package -type f -name ctlmgr-docker)
"$plugin" serve --listen /run/docker/plugins/ctlmgr.sock --daemon /run/nobody.sock &
asked=$!
echo '{}' >/run/daemon.json
dockerd --config-file /run/daemon.json --data-root /run/data --exec-root /run/exec --pidfile /run/dockerd.pid \
	--host $DOCKER_HOST --bridge none --iptables=false --ip6tables=false --storage-driver vfs >/run/dockerd.log 2>&1 &
dockerd=$!
for _ in $(seq 150); do
	docker version >/dev/null 2>&1 && break
	sleep 0.2
done
docker version >/dev/null || { tail -5 /run/dockerd.log; exit 1; }
tar --create --directory /run/empty . | docker import - empty >/dev/null
for n in $(seq 20); do docker create --name "c$n" --network none empty true >/dev/null; done

# Whether the plugin is asked: one that stands still holds requests up.
is_asked() {
	kill -STOP $asked
	timeout 1 docker version >/dev/null && held=no || held=yes
	kill -CONT $asked
	# One that is slow for another reason says nothing.
	timeout 1 docker version >/dev/null && [ $held = "$1" ]
}
# use JSON yes|no: dockerd's configuration, and whether it asks from then on.
use() {
	echo "$1" >/run/daemon.json
	kill -HUP $dockerd
	for _ in $(seq 50); do is_asked "$2" && return; done
	echo "dockerd does not do as its configuration says"
	exit 1
}
# emit MODE: milliseconds that docker ps takes, in the mean of twenty.
emit() {
	began=$(date +%s%N)
	for _ in $(seq 20); do docker ps --all >/dev/null; done
	echo "@{\"mode\":\"$1\",\"what\":\"ps\",\"us\":$((($(date +%s%N) - began) / 20 / 1000))}"
}
emit warm
for _ in $(seq "$1"); do
	use '{}' no
	emit without
	use '{"authorization-plugins": ["ctlmgr"]}' yes
	emit asked
done
