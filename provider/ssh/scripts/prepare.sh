echo "now=$(date +%s)"
echo "boot_id=$(line /proc/sys/kernel/random/boot_id)"
echo "uid=$(id -u)"
echo "free_kib=$(free_kib "$bin_dir")"
for command in cat chmod df grep id mkdir mv nohup readlink rm sleep tail tr uname wc; do
	if ! has "$command"; then echo "missing=$command"; fi
done
