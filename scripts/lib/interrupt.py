"""Ctrl-C ends a script that imports this module with one line and the exit status 130, instead of a traceback."""
import os
import sys

show_traceback = sys.excepthook


def show(kind, error, trace):
    if not issubclass(kind, KeyboardInterrupt):
        return show_traceback(kind, error, trace)
    sys.stderr.write("%s: interrupted\n" % os.path.basename(sys.argv[0]))
    sys.exit(130)


sys.excepthook = show
