# Another account's agent is none of our business.
mark_now=$(line "$etc/install")
if [ "${mark_now% *}" != "$account" ]; then exit 0; fi
stop_agent
disable_agent
rm -rf "$state" "$etc" "$bin" "$unit" "$init"
if systemd; then systemctl daemon-reload; fi
