"""The llama31 program that belongs to the scripts."""
import os
import shutil


def find_program():
    """The llama31 of this source tree or installation, or in PATH."""
    above = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    for path in os.path.join(above, "llama31"), os.path.join(above, "..", "..", "bin", "llama31"):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("llama31")
