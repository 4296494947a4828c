#!/bin/sh
# Makes a machine ours, as the document for cloud-init does: see machine_script.py. It may be run
# again, at each boot say. Without root, all is below a folder of the user's own; also where others
# use the machine and JUPYTER_SKY_MACHINE names that folder, whoever runs it.
user=@USER@ public_key=@PUBLIC_KEY@
fail() { echo "jupyter-sky-failed: $1"; exit 1; }

if [ -n "${JUPYTER_SKY_MACHINE-}" ]; then
  root=$JUPYTER_SKY_MACHINE user=$(id -un)
elif [ "$(id -u)" = 0 ]; then
  root=
else
  root=$HOME/.cache/jupyter_sky/machine user=$(id -un)
fi
etc=$root/etc/ssh boot=$root/run/jupyter-sky-boot kept=$root/var/lib/jupyter-sky
mkdir -p "$etc" "$boot" "$kept" "$root/usr/local/sbin" || fail "files cannot be written"

# -- the SSH server's program -------------------------------------------------------------------

find_sshd() {
  for sshd in "$(command -v sshd)" /usr/sbin/sshd /usr/local/sbin/sshd; do
    [ -x "$sshd" ] && return
  done
}
install_sshd() {
  if command -v apt-get; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-server
  elif command -v apk; then
    apk add --no-cache openssh-server openssh-keygen
  fi
}
find_sshd || { [ -n "$root" ] || install_sshd >/dev/null 2>&1; find_sshd; } ||
  fail "no sshd is installed, nor can be"

# -- the user -----------------------------------------------------------------------------------

if [ -z "$root" ] && ! id "$user" >/dev/null 2>&1; then
  if command -v useradd >/dev/null; then
    # '*' opens to no password; '!' would be a locked account, which sshd refuses without PAM
    useradd -m -s "$(command -v bash || echo /bin/sh)" -p '*' "$user"
  else
    adduser -D "$user" && sed -i "s/^$user:!/$user:*/" /etc/shadow
  fi || fail "there can be no user $user"
  if [ -d /etc/sudoers.d ]; then
    echo "$user ALL=(ALL) NOPASSWD:ALL" >/etc/sudoers.d/90-jupyter-sky
    chmod 440 /etc/sudoers.d/90-jupyter-sky
  fi
fi
if [ -z "$root" ]; then
  home=$(awk -F: -v user="$user" '$1 == user { print $6 }' /etc/passwd)
  authorized=$home/.ssh/authorized_keys
  mkdir -p "$home/.ssh" && chmod 700 "$home/.ssh" && chown "$user" "$home/.ssh"
else
  home=$HOME authorized=$etc/authorized_keys
fi
grep -qxF "$public_key" "$authorized" 2>/dev/null || echo "$public_key" >>"$authorized"
chmod 600 "$authorized" && chown "$user" "$authorized" || fail "no key can be let in"

# -- the host key: the first one, once, as another one takes its place --------------------------

key=$etc/ssh_host_ed25519_key
if ! [ -e "$kept/host_key" ]; then
  [ -n "$root" ] || rm -f /etc/ssh/ssh_host_*
  (umask 077 && cat >"$key.new") <<'JUPYTER_SKY_END'
@HOST_PRIVATE@
JUPYTER_SKY_END
  echo @HOST_PUBLIC@ >"$key.pub"
  mv "$key.new" "$key" && : >"$kept/host_key" || fail "there can be no host key"
fi

# -- the SSH server -----------------------------------------------------------------------------

config=$etc/jupyter_sky_config
cat >"$config" <<END
HostKey "$key"
AuthorizedKeysFile "$authorized"
PidFile "$boot/sshd.pid"
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
SetEnv "JUPYTER_SKY_KEEPALIVE=$root/run/jupyter-sky"
END
[ -z "$root" ] || echo "StrictModes no" >>"$config"
cat >"$root/usr/local/sbin/jupyter-sky-sshd" <<END
#!/bin/sh
# Serves one connection on standard input and output.
exec "$sshd" -i -f "$config"
END
chmod 755 "$root/usr/local/sbin/jupyter-sky-sshd"
serve() { # to the network, as root: by the machine's own server if it runs, else by ours
  mkdir -p /run/sshd
  [ -d /etc/ssh/sshd_config.d ] &&
    echo "PasswordAuthentication no" >/etc/ssh/sshd_config.d/00-jupyter-sky.conf
  systemctl reload ssh || systemctl reload sshd ||
    { [ -s /run/sshd.pid ] && kill -HUP "$(cat /run/sshd.pid)"; } ||
    { [ -s "$boot/sshd.pid" ] && kill -HUP "$(cat "$boot/sshd.pid")"; } || "$sshd" -f "$config"
} 2>/dev/null
[ -n "$root" ] || serve || echo "nothing listens for SSH: port 22 is taken"

# -- the lease ----------------------------------------------------------------------------------

@LEASE_FILES@
JUPYTER_SKY_ROOT=$root JUPYTER_SKY_USER=$user JUPYTER_SKY_HOME=$home
export JUPYTER_SKY_ROOT JUPYTER_SKY_USER JUPYTER_SKY_HOME
sh "$root@BOOT_SCRIPT@" 2>/dev/null

echo jupyter-sky-ready
if [ $$ = 1 ] || [ "${1-}" = stay ]; then # with this process the container or the job ends
  trap 'exit 0' TERM INT
  while :; do
    sleep 3600 >/dev/null 2>&1 &
    wait $!
  done
fi
