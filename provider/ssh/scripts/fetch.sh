# Fetches the agent. Whoever answers is not believed, but for the digest.
umask 022
case $(uname -m) in
x86_64 | amd64) arch=amd64 digest=$digest_amd64 ;;
aarch64 | arm64) arch=arm64 digest=$digest_arm64 ;;
*) digest= ;;
esac
if [ -z "$digest" ]; then
	echo "there is no agent for $(uname -m)"
	exit 1
fi
mkdir -p "$bin_dir"
upload=$bin_dir/.bcd-$digest
fetch() {
	if has curl; then
		curl -fsSk --connect-timeout 10 --max-time 120 -o "$upload" "$agent_url/$arch"
	elif has wget; then
		wget -q --no-check-certificate -T 30 -O "$upload" "$agent_url/$arch"
	else
		python3 -c 'import shutil, ssl, sys, urllib.request as u
shutil.copyfileobj(u.urlopen(sys.argv[1], None, 30, context=ssl._create_unverified_context()), open(sys.argv[2], "wb"))' "$agent_url/$arch" "$upload"
	fi
}
tries=0
until fetch && [ "$(sha256sum <"$upload")" = "$digest  -" ]; do
	rm -f "$upload"
	tries=$((tries + 1))
	if [ $tries -ge 60 ]; then
		echo "the agent cannot be fetched from $agent_url/$arch, or is not the one that was promised"
		exit 1
	fi
	sleep 5
done
size=$(wc -c <"$upload")
