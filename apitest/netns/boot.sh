# Turns this process, PID 1 of new mount, UTS, IPC and PID namespaces, into a machine: a root of its own over the files of the
# system below it, and an init that starts what was installed to start at boot, and sshd.
# Arguments: the machine's folder, its host name, the id of this boot, and which init it has: small or systemd.
set -eu
dir=$1 name=$2 boot=$3 init=$4

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/disk/upper,workdir=$dir/disk/work" "$dir/root"
cd "$dir/root"
# The home of the user below has a life of its own: start-up files, caches.
mkdir -p -m 0700 "$dir/disk/home"
mount --bind "$dir/disk/home" root
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs sys
cp -R "$dir/sys/." sys/
mount -t tmpfs -o mode=0755 tmpfs dev
for device in null zero full random urandom tty; do
	touch "dev/$device"
	mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm run/sshd
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t proc proc proc
echo "$name" >proc/sys/kernel/hostname
# The kernel is everybody's: its settings are not this machine's to change.
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
# It has also booted once only; this machine has its own count.
echo "$boot" >run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id

if [ ! -e "$dir/seeded" ]; then
	rm -f etc/rc?.d/S* etc/systemd/system/*.wants/*
	sed -i 's/^root:!/root:*/' etc/shadow
	cp -R "$dir/seed/." .
	chmod 0600 etc/ssh/netns_host_key
	touch "$dir/seeded"
fi

if [ "$init" = systemd ]; then
	# It rules the control group that it starts in as its own, so it gets one that is.
	mkdir -p sys/fs/cgroup
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mkdir -p "sys/fs/cgroup/$name"
	echo 0 >"sys/fs/cgroup/$name/cgroup.procs"
	umount sys/fs/cgroup
	mkdir -p etc/systemd/system/multi-user.target.wants
	ln -sf ../netns-sshd.service etc/systemd/system/multi-user.target.wants/
	exec unshare --cgroup /bin/sh -c '
		mount -t cgroup2 cgroup2 sys/fs/cgroup
		exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --unit=multi-user.target --show-status=no
	'
fi

exec chroot . /bin/sh -c '
	for service in /etc/rc2.d/S*; do
		if [ -x "$service" ]; then "$service" start </dev/null; fi
	done
	/bin/sh /etc/ssh/netns-start
	while :; do sleep 3600 & wait; done
'
