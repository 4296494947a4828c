#!/bin/sh
# One node of a job of Slurm, as long as the job lasts: see provider.py.
#
# All of its files are below a folder of the user's own, which other nodes may see as well. All that
# comes by SSH is started from here: what a step of srun starts would end with its connection.
umask 077
root=$HOME/@FOLDER@/$SLURM_JOB_ID.$SLURMD_NODENAME
mkdir -p "$root/connections" "$root/slots" || exit 1
started() { # what has this folder in its environment
  grep -lszxF "JUPYTER_SKY_MACHINE=$root" /proc/[0-9]*/environ | cut -d / -f 3
}
finish() { # where Slurm looks at the tree of processes alone, some of ours have left it
  trap '' TERM INT
  for signal in TERM 0 0 0 0 0 0 0 0 0 KILL; do
    pids=$(started)
    [ -n "$pids" ] || break
    # shellcheck disable=SC2086
    kill -s "$signal" $pids 2>/dev/null
    sleep 0.1
  done
  rm -rf "$root"
}
trap finish EXIT
trap 'exit 0' TERM INT
echo "$@SETUP_VARIABLE@" | base64 -d | gzip -d >"$root/setup" || exit 1
unset @SETUP_VARIABLE@
JUPYTER_SKY_MACHINE=$root JUPYTER_SKY_SLOTS=$root/slots JUPYTER_SKY_KEEPALIVE=$root/run/jupyter-sky
export JUPYTER_SKY_MACHINE JUPYTER_SKY_SLOTS JUPYTER_SKY_KEEPALIVE
sh "$root/setup" || exit 1
rm "$root/setup"

# what is started by SSH has the environment of the job: its GPUs, modules and folders
export -p >"$root/environment"
cat >"$root/shell" <<END
command=\${SSH_ORIGINAL_COMMAND-}
. "$root/environment"
cd "\$HOME" || exit 1
[ -n "\$command" ] || exec "\${SHELL:-/bin/sh}" -l
exec "\${SHELL:-/bin/sh}" -c "\$command"
END
echo "ForceCommand sh '$root/shell'" >>"$root/etc/ssh/jupyter_sky_config"

mkfifo "$root/requests"
exec 3<>"$root/requests"
cat >"$root/connect.partial" <<END
# Passes what comes on standard input to an SSH server that the node's own process starts.
cd "$root/connections" && rm -f "\$\$.in" "\$\$.out" && mkfifo "\$\$.in" "\$\$.out" || exit 1
trap 'rm -f "\$\$.in" "\$\$.out"' EXIT
echo "\$\$" >../requests
exec 4<&0 # of what runs in the background, it is closed
cat <&4 >"\$\$.in" 4<&- &
exec 4<&-
cat "\$\$.out"
kill "\$!" 2>/dev/null
exit 0 # srun would speak of any other code
END
mv "$root/connect.partial" "$root/connect"
while read -r name <&3; do
  case $name in '' | *[!0-9]*) continue ;; esac
  "$root/usr/local/sbin/jupyter-sky-sshd" 3<&- \
    <"$root/connections/$name.in" >"$root/connections/$name.out" &
done
