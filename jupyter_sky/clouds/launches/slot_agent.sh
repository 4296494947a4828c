# Acquire a slot of this machine for a cluster and report the properties of the machine.
#
#   sh -c "$(cat slot_agent.sh)" sky TOKEN SLOTS SECONDS NOTE SETTINGS KEY VERSION PYTHON HOST_KEY
#
# SETTINGS is shell text of the machine's owner. KEY names the environment that engines need, with
# a Python of a minor VERSION: the owner's PYTHON, or any. HOST_KEY is of rented machines alone: the
# key that is to follow the one that they started with, for lease.sh to install.
#
# Exit codes: 73 no folder can be made, 75 every slot is taken, 77 the slots are another user's. That the tools are there has been
# seen before (69 if not): `TOOL_CHECK_SCRIPT` in ssh_slot.py.
#
# A slot is a lock that a process holds. The one started here, the slot agent, waits SECONDS for the
# start command and gives up without it; with it, it becomes the cluster's supervisor. However that
# ends, the kernel lets go of the lock.
umask 077
token=$1 slots=$2 seconds=$3 note=$4 settings=$5 key=$6 version=$7 python=$8 host_key=$9
read -r system name machine <<END
$(uname -s -n -m)
END
base=$HOME/.cache/jupyter_sky
runs=$base/run/$name
# the first is for who administers the machine to make: nobody else can
locks=${JUPYTER_SKY_SLOTS:-/var/lib/jupyter_sky-slots}
[ -d "$locks" ] || locks=${JUPYTER_SKY_SLOTS:-/tmp/jupyter_sky-slots}
mkdir -p "$runs" "$base/env" "$base/ended" || exit 73
[ -d "$locks" ] || { (umask 0; mkdir -m 1777 -p "$locks") 2>/dev/null; }
if [ -L "$locks" ] || ! [ -w "$locks" ] || ! [ -x "$locks" ]; then
  echo "$locks (made by $(stat -c %U "$locks" 2>/dev/null || echo "no user"))" >&2
  exit 77
fi
directory=$runs/$token
if [ -n "$host_key" ]; then
  handed=${JUPYTER_SKY_MACHINE:-$base}/host_key # of nodes with one home, each has its own
  printf '%s\n' "$host_key" >"$handed.partial" && mv "$handed.partial" "$handed"
fi

exec 7>"$base/lock" || exit 73
flock 7
# what a machine that was restarted has left
this=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)
for old in "$runs"/*/; do
  [ -e "$old/alive" ] && flock -s -n "$old/alive" true || continue
  name=$(basename "$old")
  if [ -e "$old/boot" ] && [ "$(cat "$old/boot")" != "$this" ]; then
    [ -e "$base/ended/$name.json" ] ||
      echo '{"reason": "the machine was restarted"}' >"$base/ended/$name.json"
  fi
  for mounted in "$old"mounts/*; do # of a cluster all of whose processes were killed
    fusermount3 -u -z "$mounted" 2>/dev/null
  done
  rm -rf "$old"
done
find "$base/ended" -type f -mtime +7 -exec rm -f {} + 2>/dev/null

if ! [ -d "$directory" ]; then
  slot=
  number=0
  while [ "$number" -lt "$slots" ]; do
    lock=$locks/$number
    [ -e "$lock" ] || (umask 0; : >"$lock") 2>/dev/null
    # its file may have been removed between the two, by one who has just ended
    if [ -f "$lock" ] && [ -r "$lock" ] && exec 9<"$lock" && flock -n 9 &&
      [ "$(stat -L -c %i /proc/$$/fd/9)" = "$(stat -c %i "$lock" 2>/dev/null)" ]; then
      slot=$number
      break
    fi
    exec 9<&-
    number=$((number + 1))
  done
  [ -n "$slot" ] || exit 75
  mkdir "$directory" || exit 73
  # its files, where its machine was stopped and is started again: see ssh_slot.py. They stay where
  # no end of a cluster removes them.
  kept=$base/kept-$token
  if [ -d "$kept" ]; then ln -s "$kept" "$directory/work"; else mkdir "$directory/work"; fi || exit 73
  echo "$slot" >"$directory/slot"
  printf %s "$note" >"$directory/note"
  echo "$this" >"$directory/boot"
  lease=${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky} # of a rented machine, which ends with its cluster
  # at first contact it may not be there yet
  { [ -d "$lease" ] || [ -n "$host_key" ]; } && end=$lease/end || end=
  cleanup() {
    printf '{"record": "%s", "remove": ["%s", "%s"], "end": "%s"}' \
      "$base/ended/$token.json" "$directory" "$locks/$slot" "$1"
  }
  cleanup "$end" >"$directory/cleanup.json"
  if [ -d "$kept" ]; then # until its start is confirmed a cluster's end is not that of the machine
    mv "$directory/cleanup.json" "$directory/confirmed.json" && cleanup '' >"$directory/cleanup.json"
  fi
  exec 8>"$directory/alive"
  flock -n 8 || exit 73
  # shellcheck disable=SC2016
  setsid sh -c '
    cd "$1" || exit 1
    trap "exit 1" TERM
    trap "kill \$waiter; rm -rf \"$1\" \"$3\"" EXIT
    mkfifo wake && exec 6<>wake || exit 1
    timeout "$2" head -c 1 <&6 >wakened 8>&- 9<&- &
    waiter=$!
    echo $$ >pid
    wait "$waiter"
    exec 6<&-
    [ -s wakened ] && . ./go
  ' slot-agent "$directory" "$seconds" "$locks/$slot" 7>&- </dev/null >>"$directory/controller.log" 2>&1 &
  exec 8>&- 9<&-
  tries=0
  until [ -s "$directory/pid" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 500 ] || exit 73
    sleep 0.01
  done
fi
exec 7>&-

echo "directory=$directory"
echo "slot=$(cat "$directory/slot")"
echo "system=$system"
echo "machine=$machine"
echo "base=$base"
echo "free=$(df -Pk "$base" | awk 'END { print $4 }')"
environment=$base/env/$key-$machine
echo "environment=$environment"
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null)
echo "glibc=$glibc"
[ -z "$glibc" ] && ldd --version 2>&1 | grep -qi musl && echo "libc=musl"
eval "$settings"
case $(tar --version 2>/dev/null) in *GNU*) echo "zstd=$(command -v zstd)" ;; esac
echo "uv=$(command -v uv || command -v "$HOME/.local/bin/uv" || command -v "$base/uv")"
[ -e "$environment/complete" ] && echo "ready=yes" && exit
python=${python:-$(command -v "python$version")} && "$python" -I -S -c '
import sys
if sys.argv[1] == "%d.%d" % sys.version_info[:2]:
    print("found=" + getattr(sys, "_base_executable", sys.executable))' "$version" 2>/dev/null
exit 0
