"""The llama31 program that belongs to the scripts."""
import os
import shutil
import subprocess
import sys

from lib.gguf_writer import Failure


def find_program():
    """The llama31 of this source tree or installation, or in PATH."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    for path in os.path.join(above, "llama31"), os.path.join(above, "..", "..", "bin", "llama31"):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("llama31")


def run_script(main, arguments):
    """Calls main(arguments). An error becomes one line on stderr and an exit status."""
    name = os.path.basename(sys.argv[0])
    try:
        main(arguments)
    except (Failure, ValueError) as e:  # ValueError: quotes in an argument
        sys.exit("%s: %s" % (name, e))
    except OSError as e:
        sys.exit("%s: %s: %s" % (name, e.filename, e.strerror))
    except subprocess.CalledProcessError as e:  # llama31 has written its error
        sys.exit(e.returncode if e.returncode > 0 else str(e))
