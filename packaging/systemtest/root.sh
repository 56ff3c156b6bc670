#!/bin/sh
# Makes the root file system that the system tests boot: this machine's own Debian or Ubuntu release, as small as one with systemd as PID 1 can be.
# Prints its path, a tar.zst that is kept between runs under $XDG_CACHE_HOME and made anew when this script or the release changes. Needs root and mmdebstrap.
set -eu
include=systemd,systemd-sysv,dbus

. /etc/os-release
cache=${XDG_CACHE_HOME:-$HOME/.cache}/holdfast
key=$( (echo "$VERSION_CODENAME $(dpkg --print-architecture)"; cat "$0") | sha256sum | cut -c1-16)
root=$cache/root-$key.tar.zst
mkdir -p "$cache"

# One maker at a time; what a killed one has left is nobody's then. The name that is asked for is given last, to a whole file.
exec 9>"$cache/lock"
flock 9
rm -rf "$cache"/making.*
if [ ! -e "$root" ]; then
	making=$cache/making.$$
	mkdir "$making"
	trap 'rm -rf "$making"' EXIT
	# Where packages come from, and how (a proxy, certificates), is what apt on this machine says.
	apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u |
		while read -r site release component; do
			case $release in
			"$VERSION_CODENAME" | "$VERSION_CODENAME-updates" | "$VERSION_CODENAME-security") ;;
			*) continue ;;
			esac
			[ "$component" = main ] || continue
			echo "deb [signed-by=/usr/share/keyrings/$ID-archive-keyring.gpg] $site $release $component"
		done >"$making/sources"
	[ -s "$making/sources" ] || { echo "root.sh: apt on this machine has no lists of $VERSION_CODENAME main: apt-get update" >&2; exit 1; }
	apt-config dump --format '%f "%v";%n' Acquire | grep -E '^Acquire::(https?::|Retries|ForceIPv)' | grep -v '""' >"$making/apt.conf" || true
	mmdebstrap --quiet --variant=minbase --mode=root --include="$include" --aptopt="$making/apt.conf" \
		--customize-hook='rm -rf "$1"/usr/share/locale/* "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/info/* "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/apt.conf.d/70debconf' \
		--customize-hook='rm -f "$1"/etc/resolv.conf; echo board >"$1"/etc/hostname; printf "127.0.0.1 localhost board\n" >"$1"/etc/hosts' \
		--customize-hook='for u in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service dpkg-db-backup.timer; do ln -sf /dev/null "$1/etc/systemd/system/$u"; done' \
		"$VERSION_CODENAME" "$making/root.tar.zst" "$making/sources" >&2
	rm -f "$cache"/root-*.tar.zst
	mv "$making/root.tar.zst" "$root"
fi
echo "$root"
