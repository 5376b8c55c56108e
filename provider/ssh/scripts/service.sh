stop_agent() {
	if systemd && [ -e "$unit" ]; then systemctl stop bcd.service; fi
	if [ -x "$init" ]; then "$init" stop; fi
}

start_agent() {
	if systemd; then
		systemctl daemon-reload
		systemctl enable bcd.service
		systemctl start bcd.service
		return
	fi
	if has update-rc.d; then
		enable="update-rc.d bcd defaults"
	elif has rc-update; then
		enable="rc-update add bcd default"
	elif has chkconfig; then
		enable="chkconfig --add bcd"
	else
		enable=false
	fi
	$enable || echo "nothing on this machine starts bcd at boot: a reboot ends it"
	"$init" start
}

disable_agent() {
	if systemd; then systemctl disable bcd.service || true; fi
	if has update-rc.d; then
		update-rc.d -f bcd remove || true
	elif has rc-update; then
		rc-update del bcd default || true
	elif has chkconfig; then
		chkconfig --del bcd || true
	fi
}
