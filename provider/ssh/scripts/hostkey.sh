# Runs within a system that has just been put onto a disk: gives it its host key, and lets root in.
umask 022
rm -f /etc/ssh/ssh_host_*
if [ -d /etc/cloud/cloud.cfg.d ]; then echo '{"ssh_deletekeys": false, "disable_root": false}' >/etc/cloud/cloud.cfg.d/99-bcd.cfg; fi
echo "$host_public" >/etc/ssh/ssh_host_ed25519_key.pub
mkdir -p /root/.ssh
umask 077
cat >/etc/ssh/ssh_host_ed25519_key <<END
$host_key
END
chmod 0700 /root/.ssh
echo "$authorized" >>/root/.ssh/authorized_keys
chmod 0600 /root/.ssh/authorized_keys
