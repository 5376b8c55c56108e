# Turns this process, PID 1 of new mount, UTS, IPC and PID namespaces, into a machine: a root of its own over the files of the
# system below it, and an init that starts what was installed to start at boot, then sshd.
# Arguments: the machine's folder, its host name, and the id of this boot.
set -eu
dir=$1 name=$2 boot=$3

mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/disk/upper,workdir=$dir/disk/work" "$dir/root"
cd "$dir/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs sys
cp -R "$dir/sys/." sys/
mkdir run/sshd
# The kernel below has booted once; this machine has its own count.
echo "$boot" >run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
echo "$name" >proc/sys/kernel/hostname

if [ ! -e "$dir/seeded" ]; then
	rm -f etc/rc?.d/S*
	sed -i 's/^root:!/root:*/' etc/shadow
	cp -R "$dir/seed/." .
	chmod 0600 etc/ssh/netns_host_key
	touch "$dir/seeded"
fi

exec chroot . /bin/sh -c '
	for service in /etc/rc2.d/S*; do
		if [ -x "$service" ]; then "$service" start </dev/null; fi
	done
	/bin/sh /etc/ssh/netns-start
	while :; do sleep 3600 & wait; done
'
