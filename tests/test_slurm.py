#!/usr/bin/env python3
"""Job arrays of a real Slurm on this machine: slurmctld and slurmd with one node, started in a temporary directory.

Each test submits arrays of batch --shard slurm, ends tasks in some way, repeats the command that a user would type, and
merges. No answer is lost, duplicate or of another request. Needs root, slurmctld, slurmd and munged."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from cli import PROGRAM, SCRIPTS, Skip, check, main, read_lines, same, slow, test

N_RECORDS, N_SHARDS = 400, 8
CONFIG = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
SlurmctldPort={port1}
SlurmdPort={port2}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={tmp}/state
SlurmdSpoolDir={tmp}/spool
SlurmctldPidFile={tmp}/slurmctld.pid
SlurmdPidFile={tmp}/slurmd.pid
SlurmctldLogFile={tmp}/slurmctld.log
SlurmdLogFile={tmp}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=2
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """The daemons, and a directory for the files of the jobs."""

    def __init__(self):
        for program in "slurmctld", "slurmd", "munged", "sbatch":
            if not shutil.which(program):
                raise Skip("no " + program)
        if os.geteuid() or not sys.platform.startswith("linux"):
            raise Skip("needs root")

        self.tmp = tempfile.mkdtemp(prefix="llama31-slurm-")
        self.daemons = []
        host = socket.gethostname().split(".")[0]
        for name in "state", "spool":
            os.mkdir(os.path.join(self.tmp, name))
        config = os.path.join(self.tmp, "slurm.conf")
        with open(config, "w") as f:
            f.write(CONFIG.format(host=host, tmp=self.tmp, port1=26817, port2=26818))
        self.env = dict(os.environ, SLURM_CONF=config)

        try:
            if subprocess.run(["munge", "-n"], capture_output=True).returncode:
                os.makedirs("/run/munge", exist_ok=True)
                shutil.chown("/run/munge", "munge", "munge")
                self.start("runuser", "-u", "munge", "--", "munged", "-F", "--force")
            self.start("slurmctld", "-D")
            self.start("slurmd", "-D", "-N", host)
            self.wait(lambda: "idle" in self.call("sinfo", "-h", "-o", "%t"), "no idle node", 20)
        except AssertionError as e:
            self.stop()
            raise Skip("Slurm does not start here: %s" % e)

    def start(self, *command):
        self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))

    def stop(self):
        for p in reversed(self.daemons):
            p.terminate()
            p.wait(20)
        shutil.rmtree(self.tmp, ignore_errors=True)

    def call(self, *command):
        return subprocess.run(command, env=self.env, cwd=self.tmp, capture_output=True, text=True, timeout=60).stdout

    @staticmethod
    def wait(condition, what, sec=30):
        end = time.monotonic() + sec
        while not condition():
            check(time.monotonic() < end, what)
            time.sleep(0.1)

    def submit(self, array, *args):
        """Submits an array, returns its id."""
        command = [PROGRAM, "batch", "-t", "1", "--parallel", "2", "-i", "in", "-o", "out.$SLURM_ARRAY_TASK_ID.jsonl",
                   "--shard", "slurm", "--resume", *args]
        job = self.call("sbatch", "--parsable", "--requeue", "--array=" + array, "--wrap", "exec " + " ".join(command)).strip()
        check(job, "sbatch failed")
        return job

    def finish(self):
        self.wait(lambda: not self.call("squeue", "-h").strip(), "jobs do not end", 60)

    def begin(self, n_tokens):
        """Writes an input whose answers take n_tokens."""
        self.call("scancel", "-u", "root")
        self.finish()
        for name in os.listdir(self.tmp):
            if name.startswith("out.") or name.endswith(".out"):
                os.remove(os.path.join(self.tmp, name))
        with open(os.path.join(self.tmp, "in"), "w") as f:
            for i in range(N_RECORDS):
                f.write(json.dumps({"id": "r%d" % i, "prompt": "Say %d." % i, "max_tokens": n_tokens,
                                    "ignore_eos": True}) + "\n")

    def outputs(self):
        return sorted(n for n in os.listdir(self.tmp) if n.startswith("out.") and n.endswith(".jsonl"))

    def n_lines(self):
        return sum(len(open(os.path.join(self.tmp, n), "rb").readlines()) for n in self.outputs())

    def logs(self):
        return "".join(open(os.path.join(self.tmp, n)).read() for n in os.listdir(self.tmp) if n.endswith(".out"))

    def merge(self, *args, code=0):
        p = subprocess.run([sys.executable, os.path.join(SCRIPTS, "merge_batch.py"), *args, "-o", "merged", "in",
                            *self.outputs()], cwd=self.tmp, capture_output=True, text=True)
        same(p.returncode, code, p.stderr + self.logs()[-1500:])
        return p.stderr

    def complete(self):
        """All answers are there once, in order; the merger has compared their hashes."""
        check(self.merge().startswith("merge_batch: %d answers, 0 errors" % N_RECORDS))
        same([a["id"] for a in read_lines(os.path.join(self.tmp, "merged"))], ["r%d" % i for i in range(N_RECORDS)])

    def interrupt(self, n_tokens=20):
        """Starts the whole array, and returns its id when every task has written an answer."""
        self.begin(n_tokens)
        job = self.submit("1-%d" % N_SHARDS)
        self.wait(lambda: len(self.outputs()) == N_SHARDS and
                  all(os.path.getsize(os.path.join(self.tmp, n)) for n in self.outputs()), "no answers: " + self.logs())
        check(self.n_lines() < N_RECORDS, "the jobs are too short")
        return job


slurm = None


def scheduler():
    global slurm
    slurm = slurm or Slurm()
    return slurm


@test
def whole_array():
    s = scheduler()
    s.begin(2)
    s.submit("1-%d" % N_SHARDS)
    s.finish()
    s.complete()


@test
def scancel_and_same_line():
    s = scheduler()
    job = s.interrupt()
    s.call("scancel", job)
    s.finish()
    check("unfinished answers discarded" in s.logs(), s.logs())
    s.submit("1-%d" % N_SHARDS)
    s.finish()
    s.complete()


@test
@slow
def parts_of_the_array():
    """--array=3 and --array=3,7 repeat shards 3/8 and 7/8. Without their outputs, the shard is unknown: refused."""
    s = scheduler()
    job = s.interrupt()
    s.call("scancel", job + "_3", job + "_7")
    s.finish()
    err = s.merge(code=1)
    check("shard 3/8 (out.3.jsonl)" in err and "shard 7/8" in err and "shard 1/8" not in err, err)
    for part in "3", "3,7":
        s.submit(part)
        s.finish()
    s.complete()

    os.remove(os.path.join(s.tmp, "out.3.jsonl"))
    for part in "3", "3,7":
        s.submit(part)
        s.finish()
        check("--shard 3/N" in s.logs() and not os.path.exists(os.path.join(s.tmp, "out.3.jsonl")), s.logs())
    s.submit("3", "--shard", "3/8")
    s.finish()
    s.complete()


@test
@slow
def requeue_and_sigterm():
    s = scheduler()
    job = s.interrupt(60)
    s.call("scancel", "--signal=TERM", "--full", job + "_2")
    s.call("scontrol", "requeue", job + "_5")
    s.wait(lambda: "PENDING" in s.call("squeue", "-h", "-j", job + "_5", "-o", "%T"), "not requeued")
    s.call("scontrol", "update", "JobId=" + job + "_5", "StartTime=now")  # default: two minutes later
    s.wait(lambda: "PENDING" not in s.call("squeue", "-h", "-j", job + "_5", "-o", "%T"), "not restarted")
    s.finish()
    s.submit("2,5")
    s.finish()
    s.complete()


@test
@slow
def killed_processes():
    """SIGKILL, as when a node fails: the locks that it leaves are taken over."""
    s = scheduler()
    s.interrupt()
    for name in s.outputs():
        try:
            with open(os.path.join(s.tmp, name + ".lock")) as f:
                os.kill(int(f.read().split()[0]), signal.SIGKILL)
        except (OSError, IndexError):  # has ended
            pass
    s.finish()
    s.submit("1-%d" % N_SHARDS)
    s.finish()
    s.complete()


@test
@slow
def two_arrays():
    """Two arrays on the same outputs: the second is refused, or completes what the first has left."""
    s = scheduler()
    s.begin(10)
    s.submit("1-%d" % N_SHARDS)
    s.submit("1-%d" % N_SHARDS)
    s.finish()
    s.complete()


if __name__ == "__main__":
    try:
        main("slurm")
    finally:
        if slurm:
            slurm.stop()
