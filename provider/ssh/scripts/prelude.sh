PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL
bin_dir=/usr/local/bin
bin=$bin_dir/bcd
etc=/etc/bcd
state=/var/lib/bcd
agent_log=/var/log/bcd.log
unit=/etc/systemd/system/bcd.service
init=/etc/init.d/bcd

has() { command -v "$1" >/dev/null 2>&1; }
systemd() { [ -d /run/systemd/system ] && has systemctl; }
# The first line of a file that may be missing or unreadable.
line() {
	first=
	{ read -r first <"$1" || [ -n "$first" ]; } 2>/dev/null || return 0
	echo "$first"
}
# The free KiB where a folder is, or will be.
free_kib() {
	dir=$1
	while [ ! -d "$dir" ]; do
		dir=${dir%/*}
		dir=${dir:-/}
	done
	df -Pk "$dir" | { read -r _; read -r _ _ _ free _; echo "$free"; }
}
