# Runs the README's commands in a minimal Debian below $ROOT, in mount and process namespaces of its
# own: whatever is mounted or started here is gone when this shell is.
# Given: ROOT, MIRROR, REPOSITORY, TOOLCHAIN, CARGO_HOME_HERE, and the commands BUILD, SERVE, INGEST and TEST; an empty BUILD or TEST leaves that part out.
set -eu

now="start"
trap 'code=$?; [ "$code" = 0 ] || echo "fresh: failed at: $now" >&2' EXIT
begin() {
    now=$1
    echo "== fresh: $now" >&2
}
# Becomes the command. Debian is the root of mounts of its own, as on a machine: below chroot the
# kernel makes no user namespace.
inside() {
    exec unshare --mount sh -euc '
        mount --rbind "$ROOT" "$ROOT"
        cd "$ROOT"
        pivot_root . mnt
        umount -l /mnt
        cd ~/tenure
        exec sh -c "$0"' "$1"
}

begin "debootstrap from $MIRROR"
debootstrap --variant=minbase bookworm "$ROOT" "$MIRROR" > "$ROOT.log" 2>&1 || {
    tail -n 20 "$ROOT.log" >&2
    exit 1
}

begin "clone of HEAD"
git clone -q "$REPOSITORY" "$ROOT$HOME/tenure"

begin "mounts and settings of this machine"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount --rbind -o ro /sys "$ROOT/sys"
mkdir "$ROOT/opt/rust"
mount --bind -o ro "$TOOLCHAIN" "$ROOT/opt/rust"
cp /etc/hosts /etc/resolv.conf "$ROOT/etc/"
apt-config dump | grep '^Acquire::' > "$ROOT/etc/apt/apt.conf.d/90machine"
# There is no init that could start services.
printf '#!/bin/sh\nexit 101\n' > "$ROOT/usr/sbin/policy-rc.d"
chmod +x "$ROOT/usr/sbin/policy-rc.d"

begin "a C compiler, git, and certificates to fetch crates"
(inside "apt-get -q update && apt-get -qy install --no-install-recommends gcc libc6-dev git ca-certificates")
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ ! -f "$file" ] || cp "$file" "$ROOT$file"
done
# Of cargo's settings only how to reach the registries: no flags, wrappers or profiles.
mkdir "$ROOT$HOME/.cargo"
for file in config.toml config; do
    [ ! -f "$CARGO_HOME_HERE/$file" ] || awk '/^ *\[/ { kept = /\[(source|registr|http|net)/ } kept' \
        "$CARGO_HOME_HERE/$file" > "$ROOT$HOME/.cargo/config.toml"
done

if [ -n "$BUILD" ]; then
    begin "$BUILD"
    (inside "$BUILD")
    begin "$SERVE"
    # The shell becomes the server.
    inside "exec $SERVE" > "$ROOT.log" 2>&1 &
    server=$!
    tail -n +1 -f --pid "$server" "$ROOT.log" >&2 &
    until grep -q '^listening on' "$ROOT.log"; do
        kill -0 "$server" 2> /dev/null || exit 1
        sleep 1
    done
    begin "the README's event is accepted, and then a duplicate"
    sh -c "$INGEST" | grep '"status":"accepted","duplicate":false'
    sh -c "$INGEST" | grep '"status":"accepted","duplicate":true'
    begin "the server ends"
    kill "$server"
    wait "$server"
fi

if [ -n "$TEST" ]; then
    begin "$TEST"
    (inside "$TEST")
fi
