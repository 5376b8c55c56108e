echo "machine_id=$(line /etc/machine-id)"
echo "serial=$(line /sys/class/dmi/id/product_serial)"
echo "arch=$(uname -m)"
echo "cpus=$(nproc 2>/dev/null || grep -c ^processor /proc/cpuinfo)"
while read -r name value _; do
	case $name in MemTotal:) echo "memory_kib=$value" ;; esac
done </proc/meminfo
for disk in /sys/block/*; do
	name=${disk##*/}
	case $name in loop* | ram* | zram* | sr* | fd* | dm-* | md* | nbd* | nvme*c*n*) continue ;; esac
	if [ "$(line "$disk/removable")" = 1 ]; then continue; fi
	echo "disk=$name $(line "$disk/size") $(line "$disk/queue/rotational")"
done
for card in /sys/class/net/*/device; do
	echo "mac=$(line "${card%/device}/address")"
done
if has nvidia-smi; then
	nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null | while read -r gpu; do echo "nvidia=$gpu"; done
fi
for device in /sys/bus/pci/devices/*; do
	case $(line "$device/class") in
	0x0300* | 0x0302* | 0x0380* | 0x1200*) echo "pci=$(line "$device/vendor") $(line "$device/device")" ;;
	esac
done
if has ip; then
	ip -o addr show scope global 2>/dev/null | while read -r _ _ _ address _; do echo "address=$address"; done
fi
