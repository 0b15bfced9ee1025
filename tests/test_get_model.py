#!/usr/bin/env python3
"""scripts/get_model.sh: downloads from a local server that cuts, refuses and changes files, with curl and with wget."""
import hashlib
import http.server
import os
import shutil
import subprocess
import threading

from cli import SCRIPTS, Skip, check, main, read, same, test, write

FILE = "Llama-3.2-1B-Instruct-Q4_K_M.gguf"
PATH = "/bartowski/Llama-3.2-1B-Instruct-GGUF/%s/main/" + FILE
DATA = bytes(i * 7 % 251 for i in range(300000))
TOOLS = "awk cat cut df mktemp mv rm sed sh sha256sum shasum tr wc xargs".split()


class Hub(http.server.ThreadingHTTPServer):
    """Serves DATA, at most `cut` bytes per request, and its LFS pointer with `digest` and `size`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.cut, self.digest, self.size, self.is_dead = len(DATA), hashlib.sha256(DATA).hexdigest(), len(DATA), False
        self.starts = []  # first byte of each request for the file
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        hub = self.server
        if self.path == PATH % "raw":
            text = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (hub.digest, hub.size)
            return self.answer(200, text.encode(), len(text))
        if self.path != PATH % "resolve" or hub.is_dead:
            return self.send_error(404)

        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        hub.starts.append(start)
        self.answer(206 if start else 200, DATA[start:start + hub.cut], len(DATA) - start,
                    "bytes %d-%d/%d" % (start, len(DATA) - 1, len(DATA)))

    def answer(self, status, data, n_bytes, content_range=None):
        self.send_response(status)
        self.send_header("Content-Length", str(n_bytes))
        if content_range and status == 206:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True


def get(hub, tmp, *args, code=0, path=None):
    """Runs the script in `tmp`; returns (stdout, stderr)."""
    env = dict(os.environ, HF_ENDPOINT="http://127.0.0.1:%d" % hub.server_port, no_proxy="127.0.0.1", NO_PROXY="127.0.0.1")
    r = subprocess.run(["sh", os.path.join(SCRIPTS, "get_model.sh"), *args], cwd=tmp, capture_output=True, text=True, timeout=60,
                       env=dict(env, PATH=path or env["PATH"]))
    same(r.returncode, code, r.stderr)
    return r.stdout, r.stderr


def refused(hub, tmp, message, *args, code=1, **options):
    """The script must end with one line on stderr beside the description of the file."""
    out, err = get(hub, tmp, "llama-3.2-1b", *args, code=code, **options)
    lines = [line for line in err.splitlines() if not line.startswith(FILE)]
    check(out == "" and len(lines) == 1 and lines[0].startswith("get_model: ") and message in lines[0], out, err)


def tools(tmp, *names):
    """A directory with only these programs, for PATH."""
    folder = os.path.join(tmp, "bin")
    os.makedirs(folder, exist_ok=True)
    for name in names:
        if shutil.which(name):
            os.symlink(shutil.which(name), os.path.join(folder, name))
    return folder


def downloads(tmp, path=None):
    hub = Hub()

    # Every request is cut after 70,000 bytes. The script continues.
    hub.cut = 70000
    out, err = get(hub, tmp, "llama-3.2-1b", path=path)
    same(read(os.path.join(tmp, FILE)), DATA)
    same(hub.starts, [0, 70000, 140000, 210000, 280000])
    same(out, "export LLAMA31_MODEL='%s'\n" % os.path.join(os.path.realpath(tmp), FILE))
    check("300000 bytes, Llama 3.2 Community License" in err, err)

    # A second call reads the pointer and the file only.
    same(get(hub, tmp, "llama-3.2-1b", path=path)[0], out)
    same(len(hub.starts), 5)
    hub.shutdown()


@test
def curl(tmp):
    if not shutil.which("curl"):
        raise Skip("no curl")
    downloads(tmp)


@test
def wget(tmp):
    if not shutil.which("wget"):
        raise Skip("no wget")
    downloads(tmp, tools(tmp, "wget", *TOOLS))


def needs_client():
    if not shutil.which("curl") and not shutil.which("wget"):
        raise Skip("no curl or wget")


@test
def resumed(tmp):
    """A run that ends early keeps its bytes; the next one requests the rest."""
    needs_client()
    hub, folder = Hub(), os.path.join(tmp, "it's here")
    os.mkdir(folder)
    write(os.path.join(folder, FILE + ".part"), DATA[:1000])
    hub.is_dead = True
    refused(hub, tmp, "stopped after 1000 of 300000 bytes", folder)
    hub.is_dead = False
    out = get(hub, tmp, "llama-3.2-1b", folder)[0]
    same(hub.starts, [1000])
    same(subprocess.run(["sh", "-c", out + 'cat "$LLAMA31_MODEL"'], capture_output=True, check=True).stdout, DATA)
    hub.shutdown()


@test
def wrong_files(tmp):
    needs_client()
    hub = Hub()
    right, hub.digest = hub.digest, "0" * 64
    refused(hub, tmp, "SHA-256 is %s, expected %s; the download was deleted" % (right, hub.digest))
    same(os.listdir(tmp), [])

    # A file with this name that is another one is kept.
    hub.digest = right
    write(os.path.join(tmp, FILE), b"mine")
    refused(hub, tmp, "remove this file first")
    same(read(os.path.join(tmp, FILE)), b"mine")

    # No pointer, no server, no such directory.
    hub.digest = "not a digest"
    refused(hub, tmp, "not an LFS pointer")
    refused(hub, tmp, "none: no such directory", "none")
    hub.shutdown()
    hub.server_close()
    refused(hub, tmp, "check the network")


@test
def full_disk(tmp):
    """The size is compared with the free space before the first byte, and minus the bytes that are already there."""
    needs_client()
    hub = Hub()
    folder = tools(tmp, "curl", "wget", *(t for t in TOOLS if t != "df"))
    df = os.path.join(folder, "df")
    write(df, b"#!/bin/sh\necho header\necho '/dev/a b 1000 800 200  80% /mnt/a 5% b'\n")
    os.chmod(df, 0o755)
    refused(hub, tmp, "needs 300000 bytes, 204800 are free", path=folder)
    same(hub.starts, [])
    write(os.path.join(tmp, FILE + ".part"), DATA[:100000])
    get(hub, tmp, "llama-3.2-1b", path=folder)
    same(hub.starts, [100000])
    hub.shutdown()


@test
def names(tmp):
    r = subprocess.run(["sh", os.path.join(SCRIPTS, "get_model.sh")], capture_output=True, text=True, check=True)
    check("llama-3.1-8b: 4.9 GB, 6.0 GB of memory with 8192 positions; Meta-Llama-3.1-8B" in r.stdout and not r.stderr, r)
    r = subprocess.run(["sh", os.path.join(SCRIPTS, "get_model.sh"), "llama"], capture_output=True, text=True)
    check(r.returncode == 2 and r.stderr.count("\n") == 1 and "llama-3.2-1b" in r.stderr, r)


if __name__ == "__main__":
    main("get_model")
