# Puts the new agent in the place of the old one. From here on the connection may break: what is printed goes to a file, and no
# daemon inherits a descriptor that would keep the connection open.
umask 077
mkdir -p /var/log "$etc"
log=/var/log/bcd-install.log
exec 3>&1 >"$log" 2>&1
trap 'code=$?; tail -n 40 "$log" >&3 2>/dev/null; exit $code' EXIT
if has flock; then
	exec 9>"$etc/lock"
	tries=0
	until flock -n 9; do
		tries=$((tries + 1))
		[ $tries -le 30 ] || exit 75
		sleep 1
	done
fi

put() {
	cat >"$1.new"
	chmod "$2" "$1.new"
	mv -f "$1.new" "$1"
}

if [ ! -e "$upload" ] || [ "$(wc -c <"$upload")" -ne "$size" ]; then
	echo "the copy of the agent is not there any more"
	exit 75
fi
if systemd; then
	put "$unit" 0644 <<END
$unit_text
END
else
	mkdir -p /etc/init.d
	put "$init" 0755 <<END
$init_text
END
fi
stop_agent
# A host's identity belongs to the install that it joined by.
rm -rf "$state"
chmod 0755 "$upload"
mv -f "$upload" "$bin"
put "$etc/config.json" 0600 <<END
$config
END
put "$etc/join-token" 0600 <<END
$token
END
put "$etc/install" 0600 <<END
$mark
END
: >"$agent_log"
start_agent 3>&- 9>&-
