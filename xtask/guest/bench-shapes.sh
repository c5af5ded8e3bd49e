# bench-shapes.sh [only=PREFIX] [by=ebpf|events|calls] [at_once=1,8]: fio jobs whose character is known, one after the other, and what ctlmgr learns of each.
. /run/in/lib.sh
only= by=ebpf at_once=1,8
for assignment in "$@"; do eval "${assignment%%=*}=\${assignment#*=}"; done
install_ctlmgr /run/in/ctlmgr.deb
printf '[starts]\ntrace = "%s"\n' "$by" >/etc/ctlmgr/config.d/97-trace.toml
systemctl reload ctlmgr.service
disk=$(readlink -f /dev/disk/by-id/virtio-data)
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
mkdir -p /var/tmp/shapes
mount "$disk" /var/tmp/shapes
# What is in the image is read now, not when the first job is looked at.
docker run --rm --network none fio fio --version >/dev/null
dd if=/dev/zero of=/var/tmp/shapes/data bs=1M count=512 conv=fsync status=none
until ctlmgr queue --json | grep -Eq '"trace": *"(on|[^b])'; do sleep 0.2; done
ctlmgr queue

# shape NAME FIO_OPTION…: for five seconds, in a container that is known by this name.
shape() {
	called=$1
	shift
	case $called in "$only"*) ;; *) return ;; esac
	# Each writer has a file of its own: the kernel writes back for the first cgroup that wrote to a file.
	# Readers share one; fio drops what the cache holds of it.
	case $called in
	write* | randwrite*) file=written ;;
	*) file=data ;;
	esac
	rm -f /var/tmp/shapes/written
	fallocate -l 384m /var/tmp/shapes/written
	docker run --rm --name "$called" --network none --volume /var/tmp/shapes:/data \
		--label com.docker.compose.project=shape --label "com.docker.compose.service=$called" \
		fio fio --filename="/data/$file" --minimal --ioengine=psync --runtime=5 --time_based \
		--thread --randrepeat=0 "$@" >/dev/null
}

for pattern in read write randread randwrite; do
	for size in 4 128 1024; do
		for jobs in $(echo "$at_once" | tr , ' '); do
			for path in direct buffered; do
				# As fast as the emulated processor can with small requests, and not so fast with large
				# ones that a small part of the file is all of it.
				rate=$((size == 4 ? 4096 : 8192))
				# shellcheck disable=SC2046
				shape "$pattern-${size}k-$jobs-$path" --name=j --rw="$pattern" --bs="${size}k" --numjobs="$jobs" \
					--rate=$((rate / jobs))k --direct=$([ "$path" = direct ] && echo 1 || echo 0) \
					$(case $pattern in rand*) echo --size=384m ;; *) echo "--size=$((384 / jobs))m --offset_increment=$((384 / jobs))m" ;; esac) \
					$(case $pattern-$path in *write-buffered) echo "--fsync=$((size < 512 ? 512 / size : 1))" ;; esac)
			done
		done
	done
done
half="--size=256m --direct=1 --bs=4k"
shape randrw-50 --name=j --size=512m --direct=1 --bs=4k --rw=randrw --rwmixread=50 --rate=2m,2m
shape rw-50 --name=j --size=512m --direct=1 --bs=128k --rw=rw --rwmixread=50 --rate=4m,4m
shape randrw-90 --name=j --size=512m --direct=1 --bs=4k --rw=randrw --rwmixread=90 --rate=4m,400k
shape randrw-10 --name=j --size=512m --direct=1 --bs=4k --rw=randrw --rwmixread=10 --rate=400k,4m
shape read-and-randwrite --name=a $half --bs=128k --rw=read --rate=4m --name=b $half --offset=256m --rw=randwrite --rate=3m
shape much-read-little-randread --name=a $half --bs=128k --rw=read --rate=8m --name=b $half --offset=256m --rw=randread --rate=1m
shape much-write-little-randwrite --name=a $half --bs=128k --rw=write --rate=8m --name=b $half --offset=256m --rw=randwrite --rate=1m
shape much-randread-little-read --name=a $half --rw=randread --rate=4m --name=b $half --offset=256m --bs=128k --rw=read --rate=1m
sleep 2
ctlmgr profile list
ctlmgr profile list --json | tr -d '\n ' | sed 's/^/@{"profiles":/; s/$/}\n/'
umount /var/tmp/shapes
systemctl stop ctlmgr.service
ctlmgr diff --json | tr -d '\n ' | sed 's/^/@{"diff":/; s/$/}\n/'
