#!/bin/sh
# Ends this machine at the end of its lease, or when nobody renews it: see machine_lease.py.
#
# Within a boot only the clock since boot counts, whatever is done to the time of day. The time of
# day carries what is left of the lease over a restart, and is written anew again and again.
#
# Without root, JUPYTER_SKY_ROOT is a folder that all of its files are below: see machine_setup.sh.
root=${JUPYTER_SKY_ROOT-}
user=${JUPYTER_SKY_USER:-@USER@}
lease_duration=@LEASE@ heartbeat_timeout=@HEARTBEAT_TIMEOUT@ boot_seconds=@BOOT@
pause=2
lease="$root"/run/jupyter-sky     # the cluster's, who renews it there
boot="$root"/run/jupyter-sky-boot # root's, of this boot
kept="$root"/var/lib/jupyter-sky  # root's, over restarts
handed=@HOME@/.cache/jupyter_sky/host_key
[ -z "${JUPYTER_SKY_HOME-}" ] || handed=$JUPYTER_SKY_HOME/.cache/jupyter_sky/host_key
[ -z "${JUPYTER_SKY_MACHINE-}" ] || handed=$JUPYTER_SKY_MACHINE/host_key # the home is that of many

up() { cut -d. -f1 /proc/uptime; }
clock() { date +%s; }
number() { # only what is one may be reckoned with: anything else would end this script
  case $1 in '' | *[!0-9]* | ????????????*) return 1 ;; esac
}

mkdir -p "$boot" "$kept" "$lease" && chmod 755 "$boot" "$kept" && chown "$user" "$lease"

# The machine's identity and its user data are root's: what cells run has no use for either. The
# rest of that address, which is also a name server and a clock, stays open.
rule="-d 169.254.169.254 -p tcp --dport 80 -m owner ! --uid-owner 0 -j REJECT"
guarded='' # all may ask without iptables, and where the machine is not ours
# shellcheck disable=SC2086
if [ -n "$root" ]; then
  :
elif iptables -w -C OUTPUT $rule 2>/dev/null || iptables -w -I OUTPUT $rule 2>/dev/null; then
  guarded=1
fi
relay=''
relay_notices() { # all must hear that the machine will be taken away: see notice_relay.py
  [ -n "$relay" ] && kill -0 "$relay" 2>/dev/null && return
  rm -f "$boot/notices"
  command -v python3 >/dev/null || return
  python3 -I "$root"@RELAY@ "$boot/notices" $$ </dev/null >/dev/null 2>&1 &
  relay=$!
}

begin() { # what is left, at the first start in this boot
  left=$lease_duration now=$(clock) deadline='' written=''
  read -r deadline written 2>/dev/null <"$kept/lease"
  if number "$deadline" && number "$written"; then
    [ "$now" -lt "$written" ] && now=$written # it was set back: how long it was off is not known
    left=$((deadline - now))
    [ "$left" -gt "$lease_duration" ] && left=$lease_duration
  fi
  echo "$(up) $(($(up) + left))" >"$boot/times"
}
note() { # where nothing can be written the old note stays
  echo "$(($(clock) + last - $(up))) $(clock)" >"$kept/lease.partial" &&
    mv "$kept/lease.partial" "$kept/lease"
}

# The first host key of this machine is part of its user data and readable with it. The next
# one came by SSH.
change_host_key() {
  key="$root"/etc/ssh/ssh_host_ed25519_key
  if (umask 077 && head -c 4096 "$handed" >"$boot/host_key") &&
    ssh-keygen -y -P '' -f "$boot/host_key" >"$boot/host_key.pub" 2>/dev/null; then
    cat "$boot/host_key" >"$key.new" && chmod 600 "$key.new" &&
      mv "$key.new" "$key" && cp "$boot/host_key.pub" "$key.pub" && chmod 644 "$key.pub"
    [ -s "$boot/sshd.pid" ] && kill -HUP "$(cat "$boot/sshd.pid")" # started by machine_setup.sh
    [ -n "$root" ] || systemctl reload ssh || systemctl reload sshd
  fi
  rm -f "$boot/host_key" "$boot/host_key.pub" "$handed"
} >/dev/null 2>&1

[ -s "$boot/times" ] || begin
read -r boot_time last <"$boot/times"
if ! number "$boot_time" || ! number "$last"; then # what is in memory is full, say
  boot_time=$(up) last=$((boot_time + lease_duration))
fi
heard='' noted=-60
while sleep "$pause"; do
  now=$(up)
  if [ $((now - noted)) -ge 60 ]; then
    noted=$now
    note
  fi
  [ "$now" -ge "$last" ] && break
  [ -n "$guarded" ] && relay_notices
  [ -s "$handed" ] && change_host_key
  stopping='' # by a request, and to be started again: its cluster's end is not that of the machine
  [ -e "$lease/stopping" ] && stopping=1 && rm -f "$kept/begun"
  renewed=$(head -c 20 "$lease/renewed" 2>/dev/null)
  if number "$renewed" && [ "$renewed" -le "$now" ]; then
    heard=$renewed
    [ -n "$stopping" ] || [ -e "$kept/begun" ] || : >"$kept/begun"
  fi
  if [ -n "$heard" ]; then
    [ $((now - heard)) -gt "$heartbeat_timeout" ] && break
  elif [ -e "$kept/begun" ]; then # a cluster ended with the boot before
    [ $((now - boot_time)) -gt "$heartbeat_timeout" ] && break
  elif [ $((now - boot_time)) -gt "$boot_seconds" ]; then
    break
  fi
  [ -z "$stopping" ] && [ -e "$lease/end" ] && break
done
log=/dev/null
(: >/dev/console) 2>/dev/null && log=/dev/console
{ :
@ENDING@
} >"$log" 2>&1
while :; do
  @POWER_OFF@
  sleep 60
  @POWER_OFF_NOW@
done
