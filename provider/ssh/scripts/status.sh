echo "mark=$(line "$etc/install")"
# The agent prints no token; this keeps it so.
without_token() {
	if [ -s "$etc/join-token" ]; then grep -v -F -f "$etc/join-token" || true; else cat; fi
}
if systemd; then
	state_now=$(systemctl is-active bcd.service) || true
	if [ "$state_now" = active ]; then echo "running=yes"; fi
	code=$(systemctl show -p ExecMainStatus bcd.service)
	ended=$(systemctl show -p ExecMainExitTimestampMonotonic bcd.service)
	if [ "$state_now" != active ] && [ "${ended#*=}" != 0 ]; then echo "exit=${code#*=}"; fi
	{ journalctl -u bcd.service -n 40 --no-pager -o cat 2>/dev/null || true; } | without_token | while read -r text; do echo "log=$text"; done
elif [ -x "$init" ]; then
	"$init" status || true
	{ tail -n 40 "$agent_log" 2>/dev/null || true; } | without_token | while read -r text; do echo "log=$text"; done
fi
