# Readies the machine for the agent's binary, which comes next. What broken-off copies have left goes away; a copy that still
# runs after its connection broke writes into a file without a name then.
umask 022
mkdir -p "$bin_dir"
rm -f "$bin_dir"/.bcd-*
echo "arch=$(uname -m)"
