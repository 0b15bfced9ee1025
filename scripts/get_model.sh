#!/bin/sh
# Downloads a model file from Hugging Face: scripts/get_model.sh NAME [DIRECTORY]. Without NAME, lists the models.
#
# Size and SHA-256 come from the file's LFS pointer (/raw/main/FILE) and are checked. A download that was cut continues
# where it ended. stdout has the line that sets LLAMA31_MODEL and nothing else. HF_ENDPOINT replaces the address of the
# hub. Needs curl or wget.
set -eu

# name, GB of the file, GB of memory with 8192 positions, repository, file, license
models='
llama-3.2-1b 0.8 1.1 bartowski/Llama-3.2-1B-Instruct-GGUF Llama-3.2-1B-Instruct-Q4_K_M.gguf Llama 3.2 Community License
llama-3.2-3b 2.0 3.0 bartowski/Llama-3.2-3B-Instruct-GGUF Llama-3.2-3B-Instruct-Q4_K_M.gguf Llama 3.2 Community License
llama-3.1-8b 4.9 6.0 bartowski/Meta-Llama-3.1-8B-Instruct-GGUF Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf Llama 3.1 Community License
qwen3-4b 2.5 3.7 Qwen/Qwen3-4B-GGUF Qwen3-4B-Q4_K_M.gguf Apache-2.0
'

fail() {
    echo "get_model: $*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null
}

fetch() { # URL FILE: continues FILE. Progress is shown on a terminal only.
    if have curl; then
        if [ -t 2 ]; then show=-#; else show=-s; fi
        curl -fL "$show" -C - -o "$2" "$1"
    else
        if [ -t 2 ]; then show=-nv; else show=-q; fi
        wget "$show" -t 1 -c -O "$2" "$1"
    fi
}

digest() { # FILE: its SHA-256
    if have sha256sum; then
        sha256sum <"$1" | cut -d' ' -f1
    else
        shasum -a 256 <"$1" | cut -d' ' -f1
    fi
}

n_bytes() { # FILE: its size, 0 if it does not exist
    if [ -f "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi
}

# The model.
if [ $# -lt 1 ] || [ "$1" = --help ] || [ "$1" = -h ]; then
    echo "usage: scripts/get_model.sh NAME [DIRECTORY]"
    echo "$models" | while read -r name size memory _ file license; do
        [ -z "$name" ] || echo "    $name: $size GB, $memory GB of memory with 8192 positions; $file ($license)"
    done
    exit 0
fi
row=$(echo "$models" | awk -v name="$1" '$1 == name')
if [ -z "$row" ] || [ $# -gt 2 ]; then
    echo "get_model: $*: expected one of $(echo "$models" | cut -d' ' -f1 | xargs), and a directory" >&2
    exit 2
fi
have curl || have wget || fail "needs curl or wget; install one of them"
read -r _ _ _ repository file license <<END
$row
END
hub=${HF_ENDPOINT:-https://huggingface.co}
directory=$(cd "${2:-.}" 2>/dev/null && pwd) || fail "$2: no such directory"
path=$directory/$file

# What the file must be.
pointer=$(mktemp) || fail "no temporary file"
trap 'rm -f "$pointer"' EXIT
trap 'exit 130' HUP INT TERM
fetch "$hub/$repository/raw/main/$file" "$pointer" 2>/dev/null ||
    fail "$hub/$repository: no answer for $file; check the network"
expected=$(sed -n 's/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' "$pointer")
size=$(sed -n 's/^size \([0-9]\{1,15\}\)$/\1/p' "$pointer")
if [ -z "$expected" ] || [ -z "$size" ]; then fail "$hub/$repository/raw/main/$file: not an LFS pointer"; fi
echo "$file: $size bytes, $license, $hub/$repository" >&2

# The download, as FILE.part until it is checked. It is continued as long as each attempt adds bytes.
if [ ! -e "$path" ]; then
    part=$path.part
    have_bytes=$(n_bytes "$part")
    free=$(df -Pk "$directory" | sed -n '2s/^[^%]* \([0-9][0-9]*\)  *[0-9][0-9]*%.*/\1/p')
    if [ -n "$free" ] && [ $((size - have_bytes)) -gt $((free * 1024)) ]; then
        fail "$directory: needs $((size - have_bytes)) bytes, $((free * 1024)) are free; name another directory"
    fi
    while [ "$have_bytes" -lt "$size" ]; do
        status=0
        fetch "$hub/$repository/resolve/main/$file" "$part" || status=$?
        before=$have_bytes have_bytes=$(n_bytes "$part")
        [ "$have_bytes" -gt "$before" ] ||
            fail "$part: stopped after $have_bytes of $size bytes (exit status $status); run again to continue"
    done
    found=$(digest "$part")
    if [ "$found" != "$expected" ]; then
        rm -f "$part"
        fail "$file: SHA-256 is $found, expected $expected; the download was deleted"
    fi
    mv "$part" "$path"
else
    found=$(digest "$path")
    [ "$found" = "$expected" ] || fail "$path: SHA-256 is $found, expected $expected; remove this file first"
fi
printf "export LLAMA31_MODEL='%s'\n" "$(printf %s "$path" | sed "s/'/'\\\\''/g")"
