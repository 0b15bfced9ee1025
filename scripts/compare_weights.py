#!/usr/bin/env python3
"""Measures the error of quantized matrices in products, by tensor type. Needs only the Python standard library.

    llama31 quantize --calibrate text.txt --imatrix imatrix.gguf llama.gguf calibrated.gguf Q4_K_M
    llama31 quantize llama.gguf plain.gguf Q4_K_M
    scripts/compare_weights.py llama.gguf plain.gguf calibrated.gguf --imatrix imatrix.gguf --match blk.0.

A product sums weight times input over the columns. With the importance i of a column, the mean square of its inputs, the
error of the weights q of a matrix in the place of w is sqrt(sum of i (q - w)^2 / sum of i w^2), over all rows and
columns. Without --imatrix, all columns have the importance 1.

The files are decoded to F32 in a temporary directory ($TMPDIR), one after the other."""
import lib.interrupt  # noqa: F401
import argparse
import array
import collections
import json
import math
import operator
import os
import subprocess
import tempfile

from lib.program import find_program, run_script
from lib.gguf_reader import GgufFile
from lib.gguf_writer import Failure, product


class Weights:
    """The weights of a model file, decoded to F32 in `folder`."""

    def __init__(self, path, folder, program):
        decoded = os.path.join(folder, "decoded.gguf")
        subprocess.run([program, "quantize", "-q", "--force", path, decoded, "F32"], check=True)
        shown = json.loads(subprocess.run([program, "show", "--json", "--tensors", "-m", path], check=True,
                                          stdout=subprocess.PIPE).stdout)
        self.path, self.types = path, {t["name"]: t["type"] for t in shown["tensors"]}
        self.file = GgufFile(decoded)
        os.unlink(decoded)  # the space is free when the file is closed


class Sums:
    """Sums over all matrices of a type."""

    def __init__(self):
        self.n = 0
        self.error = self.square = 0.0


def matrix_names(weights, match):
    names = [name for name, (shape, *_) in weights.file.tensors.items() if len(shape) > 1 and match in name]
    if not names:
        raise Failure("%s: no matrix with \"%s\" in its name" % (weights.path, match))
    return names


def importance_of(imatrix, name, shape):
    """The mean squares of the inputs: for each matrix of the tensor one list, of its columns."""
    n_matrices, n_columns = product(shape[:-2]), shape[-1]
    if imatrix is None or name + ".in_sum2" not in imatrix.tensors:
        return [array.array("f", [1]) * n_columns] * n_matrices
    sums, counts = imatrix.floats(name + ".in_sum2"), imatrix.floats(name + ".counts")
    if len(sums) != n_matrices * n_columns or len(counts) not in (1, n_matrices):
        raise Failure("%s: %s: made for another model" % (imatrix.path, name))
    counts *= n_matrices // len(counts)
    return [[x / max(count, 1) for x in sums[k * n_columns:(k + 1) * n_columns]] for k, count in enumerate(counts)]


def add_matrices(sums, importance, expected, found, n_columns):
    """Adds the errors and the squares of a tensor of matrices, which have the same number of rows."""
    n = len(expected) // len(importance)  # weights of a matrix
    for first in range(0, len(expected), n_columns):
        w, q = expected[first:first + n_columns], found[first:first + n_columns]
        difference = list(map(operator.sub, q, w))
        weight = importance[first // n]
        sums.error += sum(map(operator.mul, weight, map(operator.mul, difference, difference)))
        sums.square += sum(map(operator.mul, weight, map(operator.mul, w, w)))
    sums.n += len(importance)


def errors_of(reference, quantized, names, imatrix):
    """Sums by type of the quantized file."""
    by_type = collections.defaultdict(Sums)
    for name in names:
        shape = reference.file.tensors[name][0]
        if name not in quantized.types or quantized.file.tensors[name][0] != shape:
            raise Failure("%s: expected the matrix %s of %s" % (quantized.path, name, reference.path))
        importance = importance_of(imatrix, name, shape)
        add_matrices(by_type[quantized.types[name]], importance, reference.file.floats(name), quantized.file.floats(name),
                     shape[-1])
    return by_type


def compare(options):
    imatrix = options.imatrix and GgufFile(options.imatrix)
    print("%-32s %-8s %8s  %s" % ("file", "type", "matrices", "error"))
    with tempfile.TemporaryDirectory() as folder:
        reference = Weights(options.reference, folder, options.program)
        names = matrix_names(reference, options.match)
        for path in options.quantized:
            by_type = errors_of(reference, Weights(path, folder, options.program), names, imatrix)
            for kind, sums in sorted(by_type.items()):
                print("%-32s %-8s %8d  %.3g" % (path, kind, sums.n, math.sqrt(sums.error / sums.square)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", metavar="REFERENCE")
    parser.add_argument("quantized", metavar="QUANTIZED", nargs="+")
    parser.add_argument("--imatrix", metavar="FILE", help="importance matrix in GGUF")
    parser.add_argument("--match", metavar="TEXT", default="", help="only matrices with TEXT in their name")
    parser.add_argument("--program", default=find_program() or "llama31", help="the llama31 program")
    run_script(compare, parser.parse_args())


if __name__ == "__main__":
    main()
