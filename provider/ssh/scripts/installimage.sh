# Begins to put a system onto the disks of a machine that runs Hetzner's rescue system, or tells how far that is.
work=/root/.bcd-image
oldroot=/root/.oldroot/nfs
tool=$oldroot/install/installimage

# What installimage says of its steps has carriage returns in it.
report() {
	{ tail -n 40 "$work/log" 2>/dev/null || true; } | tr '\r' '\n' | while read -r text; do echo "log=$text"; done
}
if [ -e "$work/exit" ]; then
	ended=$(line "$work/exit")
	echo "exit=$ended"
	report
	if [ "$ended" != 0 ]; then rm -rf "$work"; fi
	exit 0
fi
if [ -e "$work/started" ]; then
	report
	exit 0
fi

if [ ! -x "$tool" ]; then
	echo "missing=installimage"
	exit 0
fi
arch=amd64
case $(uname -m) in aarch64 | arm64) arch=arm64 ;; esac
chosen=
for file in "$oldroot/images/$image"*-"$arch"-base.tar*; do
	case $file in *.sig | *.asc) continue ;; esac
	if [ -e "$file" ]; then chosen=$file; fi
done
if [ -z "$chosen" ]; then
	echo "missing=image"
	exit 0
fi

rm -rf "$work"
umask 077
mkdir -p "$work"
count=0
size=
for disk in /sys/block/nvme* /sys/block/sd* /sys/block/vd*; do
	name=${disk##*/}
	case $name in nvme*c*n*) continue ;; esac
	sectors=$(line "$disk/size")
	# Less than 8 GiB is no disk for a system.
	if [ "${sectors:-0}" -lt 16777216 ] || [ "$(line "$disk/removable")" = 1 ]; then continue; fi
	size=${size:-$sectors}
	if [ "$sectors" = "$size" ] && [ $count -lt 2 ]; then
		count=$((count + 1))
		echo "DRIVE$count /dev/$name" >>"$work/config"
	fi
done
if [ $count = 0 ]; then
	rm -rf "$work"
	echo "missing=disk"
	exit 0
fi
{
	if [ $count = 2 ]; then
		echo "SWRAID 1"
		echo "SWRAIDLEVEL 1"
	else
		echo "SWRAID 0"
	fi
	echo "HOSTNAME $hostname"
	echo "BOOTLOADER grub"
	if [ -d /sys/firmware/efi ]; then echo "PART /boot/efi esp 256M"; fi
	echo "PART /boot ext3 1024M"
	echo "PART / ext4 all"
	echo "IMAGE $chosen"
} >>"$work/config"
cat >/root/post-install <<END
$post_text
END
chmod 0700 /root/post-install

# It takes minutes, and runs on when the connection is gone.
(
	trap '' HUP
	code=0
	TERM=xterm "$tool" -a -c "$work/config" >"$work/log" 2>&1 || code=$?
	if [ "$code" = 0 ] && ! grep -q '^@end 0' "$work/log"; then code=1; fi
	rm -f /root/post-install
	sync
	echo "$code" >"$work/exit.new"
	mv -f "$work/exit.new" "$work/exit"
) </dev/null >/dev/null 2>&1 &
echo "$!" >"$work/started"
