# Run once in a booted guest, before its state is saved.
set -eu

for _ in $(seq 120); do docker version >/dev/null 2>&1 && break; sleep 1; done
docker version >/dev/null

# Container images from the guest's own packages.
image() {
	name=$1; shift
	tree=$(mktemp -d)
	for file in "$@"; do
		for part in "$file" $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do
			mkdir -p "$tree$(dirname "$part")"
			cp -L "$part" "$tree$part"
		done
	done
	mkdir -p "$tree/bin" "$tree/tmp" "$tree/data"
	cp /usr/bin/busybox "$tree/bin/busybox"
	for applet in sh sleep cat true dd ls echo; do ln -s busybox "$tree/bin/$applet"; done
	tar -C "$tree" -c . | docker import -c 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' - "$name" >/dev/null
	rm -rf "$tree"
}
image busybox
image redis /usr/bin/redis-server /usr/bin/redis-benchmark /usr/bin/redis-cli
image fio /usr/bin/fio
docker run --rm --network none busybox true

swap=/dev/disk/by-id/virtio-swap
if [ -b "$swap" ]; then
	mkswap "$swap" >/dev/null
	swapon "$swap"
fi

# A small saved state: nothing cached, nothing dirty, and the input disk not read yet.
systemctl is-system-running --wait >/dev/null || true
sync
blockdev --flushbufs /dev/vdb
echo 3 >/proc/sys/vm/drop_caches
