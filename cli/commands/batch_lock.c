// The lock of an output on file systems whose flock() does not reach other machines: OUT.lock,
// created with O_EXCL and removed at the end. Entry point: batch_lock(). The file has one line:
//
//     PID HOST JOB RESTARTS BYTES
//
// JOB and RESTARTS are those of Slurm, or 0. BYTES is the length of the output at the start of the
// run, from which merge_batch.py --status computes its speed. SIGKILL leaves the file. The next run
// takes it over if it can know that its owner has ended, and otherwise names it.
#include "cli/commands/batch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    long pid, job, n_restarts;
    char host[256];
} Owner;

long slurm_number(const char *variable, long missing) {
    const char *text = getenv(variable);
    int64_t n;
    return text && parse_i64(text, &n) ? (long)n : missing;
}

// A process of this machine, which would still have locked the journal, or the same job before it
// was requeued.
static bool has_ended(const Owner *owner, const Owner *self, const Journal *j) {
    if (j->is_locked && !strcmp(owner->host, self->host)) return true;
    return owner->job && owner->job == self->job && owner->n_restarts < self->n_restarts;
}

// Reads the owner of a lock. It has none if its creator was killed before it wrote the line. A
// second is enough to write it.
static bool read_owner(const char *path, Owner *owner) {
    for (int i = 0; i < 2; i++) {
        Buffer text = {0};
        Error err;
        bool ok = file_read(path, &text, &err) &&
                  sscanf(text.data, "%ld %255s %ld %ld", &owner->pid, owner->host, &owner->job,
                         &owner->n_restarts) == 4;
        buffer_free(&text);
        if (ok) return true;
        poll(NULL, 0, 1000);
    }
    return false;
}

char *batch_lock(const Journal *j) {
    enum { MAX_ATTEMPTS = 3 }; // another run may take over the same lock meanwhile
    Owner self = {.pid = (long)getpid(),
                  .job = slurm_number("SLURM_JOB_ID", 0),
                  .n_restarts = slurm_number("SLURM_RESTART_COUNT", 0)};
    struct stat st;
    Error err;
    char *target = file_resolve_links(j->path, &err);
    if (!target || fstat(j->fd, &st)) die_file(j->path);
    char *path = text_format("%s.lock", target);
    char *directory = file_directory(target);
    free(target);
    if (gethostname(self.host, sizeof self.host - 1)) *self.host = 0;

    char *line = text_format("%ld %s %ld %ld %lld\n", self.pid, *self.host ? self.host : "-",
                             self.job, self.n_restarts, (long long)st.st_size);

    // Between creating the lock and registering it, nothing may fail.
    for (int i = 0; i < MAX_ATTEMPTS; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            if (!files_remove_at_exit(path) || !write_all(fd, line, strlen(line))) die_file(path);
            close(fd);
            free(line);
            return directory;
        }
        if (errno != EEXIST) {
            warn("%s: %s; runs on other machines are not kept from this output", path,
                 strerror(errno));
            return NULL;
        }

        Owner owner = {0};
        if (read_owner(path, &owner) && !has_ended(&owner, &self, j))
            die(EXIT_RUNTIME,
                "%s: in use by process %ld on %s; if it has ended, remove %s and repeat", j->path,
                owner.pid, owner.host, path);
        warn("%s: left by process %ld on %s, which has ended; taken over", path, owner.pid,
             *owner.host ? owner.host : "an unknown host");
        unlink(path);
    }
    die(EXIT_RUNTIME, "%s: other runs create it again and again", path);
}
