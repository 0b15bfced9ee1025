#!/bin/sh
# Makes a Debian package of what `make` has built: packaging/deb.sh [FOLDER]. Needs dpkg-deb.
set -eu
case ${1:-} in -*) sed -n '2s/^# *//p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
mkdir -p "${1:-.}"
folder=${1:-.} version=$(cat VERSION) arch=$(dpkg --print-architecture)
# What it is linked with: the C library of this system or a later one, and OpenMP's threads if it has them.
depends="libc6 (>= $(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2))"
if grep -q libgomp.so.1 llama31; then depends="$depends, libgomp1"; fi
if grep -q libomp.so.5 llama31; then depends="$depends, libomp5"; fi
root=$(mktemp -d) && trap 'rm -rf "$root"' EXIT
make -s --no-print-directory install DESTDIR="$root" PREFIX=/usr
gzip -9n "$root/usr/share/man/man1/llama31.1"
mkdir "$root/DEBIAN"
cat > "$root/DEBIAN/control" <<END
Package: llama31
Version: $version
Architecture: $arch
Maintainer: the llama31 authors <llama31@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends
Recommends: python3
Description: Llama 3.1 inference on the CPU
 Maps a GGUF file of a Llama model and generates text, converses, completes
 files of prompts or measures. A small story model is built in.
END
cp LICENSE "$root/usr/share/doc/llama31/copyright"
chmod -R u=rwX,go=rX "$root"
dpkg-deb --build --root-owner-group "$root" "$folder/llama31_${version}_$arch.deb"
