#!/bin/sh
# Makes the files of a release: packaging/release.sh [FOLDER]. They are the source archive of the last commit, static
# binaries that are built from it, and SHA256SUMS.
#
# x86-64 needs musl-gcc, ARM64 needs aarch64-linux-gnu-gcc. A platform without its compiler is left out with a message.
set -eu
case ${1:-} in -*) sed -n '2,5s/^# *//p' "$0"; exit ;; esac
cd "$(dirname "$0")/.."
version=$(cat VERSION)
folder=${1:-release}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [ -n "$(ls -A "$folder")" ]; then echo "release.sh: $folder is not empty; give another folder" >&2; exit 1; fi
if ! git diff --quiet HEAD; then echo "release.sh: uncommitted changes; commit them first" >&2; exit 1; fi

source=$(mktemp -d) && trap 'rm -rf "$source"' EXIT
make -s dist
mv "llama31-$version.tar.gz" "$folder"
tar -xf "$folder/llama31-$version.tar.gz" -C "$source" --strip-components=1

# PLATFORM COMPILER [FLAG...]
build() {
    platform=$1 compiler=$2
    shift 2
    if ! command -v "$compiler" >/dev/null; then
        echo "release.sh: no $compiler; $platform is left out" >&2
        return
    fi
    make -s -C "$source" CC="$compiler $*" OPENMP= LDFLAGS='-static -s' BUILD="build-$platform" "build-$platform/llama31" >/dev/null
    cp "$source/build-$platform/llama31" "$folder/llama31-$version-$platform"
}
# musl-gcc does not search the directories of the kernel's headers, which the sandbox needs.
build linux-x86_64 musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu
build linux-arm64 aarch64-linux-gnu-gcc

cd "$folder"
sha256sum llama31-* >SHA256SUMS
cat SHA256SUMS
