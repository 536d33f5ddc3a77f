#!/bin/sh
# Installs what apt.txt lists, and the packages that are named, where this machine lacks them. On a system without apt, says what is needed and goes on.
set -eu
packages="$(cat "$(dirname "$0")/../apt.txt") $*"

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not a Debian system, so nothing was installed. Tessera needs what these Debian packages hold:" >&2
  echo $packages >&2
  exit 0
fi

missing=
for package in $packages; do
  case $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null || true) in
    installed*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null; then
  as_root=sudo
else
  echo "Missing packages, and neither root nor sudo to install them. As root: apt-get install$missing" >&2
  exit 2
fi
echo "Installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
