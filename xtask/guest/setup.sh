#!/bin/sh
# Makes a Debian tree the guest: run by mmdebstrap with the tree as $1.
set -eu
tree=$1

echo guest >"$tree/etc/hostname"
echo '127.0.0.1 localhost guest' >"$tree/etc/hosts"
echo '/dev/vda / ext4 rw,noatime 0 0' >"$tree/etc/fstab"
printf 'virtio_console\nvirtio_balloon\noverlay\n' >"$tree/etc/modules-load.d/guest.conf"

# No network in the guest, and containers in a slice of their own, as the README advises.
mkdir -p "$tree/etc/docker"
cat >"$tree/etc/docker/daemon.json" <<'EOF'
{"cgroup-parent": "ctlmgr.slice", "bridge": "none", "iptables": false, "ip6tables": false, "log-driver": "local"}
EOF

# The way in must stay open while the guest is under pressure.
mkdir -p "$tree/etc/systemd/system/qemu-guest-agent.service.d" "$tree/etc/systemd/system/system.slice.d"
printf '[Service]\nOOMScoreAdjust=-1000\nMemoryMin=24M\nMemorySwapMax=0\n' \
	>"$tree/etc/systemd/system/qemu-guest-agent.service.d/guest.conf"
printf '[Slice]\nMemoryMin=24M\n' >"$tree/etc/systemd/system/system.slice.d/50-guest.conf"

# Nothing that slows the boot or runs in the middle of a measurement.
for unit in systemd-networkd.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer \
	dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service \
	serial-getty@ttyS0.service redis-server.service systemd-oomd.service systemd-oomd.socket oomd.service \
	systemd-random-seed.service systemd-update-utmp.service systemd-tmpfiles-clean.timer \
	man-db.timer ldconfig.service systemd-journal-catalog-update.service systemd-update-done.service; do
	ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
