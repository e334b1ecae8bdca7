#!/usr/bin/env python3
"""Runs tests of rdma-core's suite, each in its own process, and writes one result line for each.

    suite.py TESTS RESULTS SECONDS [NAME...]

TESTS is the directory of the suite as Debian installs it, RESULTS the file for the result lines, and SECONDS the time limit of one test.
A name is MODULE.CLASS, MODULE.CLASS.METHOD, or part of a module name; without names all tests run. A line is `plan`, `passed`, `failed` or `skipped`, the name of the test, seconds and
reason, separated by tabs. BAREVERBS_SUITE_HOST names the virtual host on which the tests run. All `plan` lines come first, so a test without a result is noticed.
"""

import importlib
import os
import signal
import socket
import sys
import tempfile
import time
import types
import unittest

TESTS, RESULTS, SECONDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
NAMES = sys.argv[4:]
HOST = os.environ.get("BAREVERBS_SUITE_HOST")


class Late(Exception):
    """A test took too long."""


def load():
    """The requested tests. Only their modules are imported, because importing all of them takes long under emulation."""
    sys.argv[1:] = []
    sys.path.insert(0, TESTS)
    from args_parser import parser

    parser.parse_args()
    package = types.ModuleType("tests")
    package.__path__ = [TESTS]
    sys.modules["tests"] = package
    if HOST:
        answer_for_the_interface()
    modules = sorted(f[:-3] for f in os.listdir(TESTS) if f.startswith("test_") and f.endswith(".py"))
    loader, cases = unittest.TestLoader(), []
    for name in NAMES and [found for name in NAMES for found in expand(name, modules)] or modules:
        importlib.import_module("tests." + name.split(".")[0])
        cases.extend(flatten(loader.loadTestsFromName("tests." + name)))
    return cases


def answer_for_the_interface():
    """The suite looks for the device's network interface and asks `ip` for its address. A virtual host has an address, but no interface."""
    base = importlib.import_module("tests.base")
    address = socket.gethostbyname(HOST)
    base.RDMATestCase._get_ip_mac = lambda self, dev, port, gid: self.args.append([dev, port, gid, address, None])


def expand(name, modules):
    return [name] if "." in name or name in modules else [module for module in modules if name in module]


def flatten(suite):
    if not isinstance(suite, unittest.TestSuite):
        return [suite]
    return [case for part in suite for case in flatten(part)]


def verdict(case):
    """Runs one test in this process."""
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    bad = result.errors + result.failures
    if bad:
        return "failed", bad[0][1]
    if result.skipped:
        return "skipped", result.skipped[0][1]
    if result.expectedFailures or result.unexpectedSuccesses:
        return "failed", "the suite expects a failure"
    return "passed", ""


def in_child(case, prints):
    """Runs one test in a child process. The result comes through a pipe, the output of the child and its children goes to a file, and processes that
    it leaves behind are killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        for descriptor in 1, 2:
            os.dup2(prints.fileno(), descriptor)
        os.close(read)
        with os.fdopen(write, "w") as out:
            out.write("\t".join(verdict(case)))
        os._exit(0)
    os.close(write)
    said, late = "", False
    try:
        signal.alarm(SECONDS)
        with os.fdopen(read) as pipe:
            said = pipe.read()
    except Late:
        late = True
    signal.alarm(0)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    if late:
        return "failed", f"not done after {SECONDS} s"
    if "\t" not in said:
        return "failed", f"the process ended without a result, wait status {status:#x}"
    word, reason = said.split("\t", 1)
    return word, reason


def one_line(word, reason):
    """The reason of a skip as the suite gives it; for a failure, its place and its message."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    if word == "failed" and len(lines) > 1:
        places = [line for line in lines if line.startswith("File ") and "/unittest/" not in line]
        at = places[-1].split("/")[-1].replace('"', "") if places else ""
        lines = [lines[-1]] if not at else [lines[-1], "at " + at]
    return " ".join(lines).replace("\t", " ")[:400]


def last_words(prints):
    """The last line that a test printed, if any."""
    prints.seek(0)
    lines = [line.strip() for line in prints.read().decode(errors="replace").splitlines() if line.strip()]
    return f" (it printed: {lines[-1]})".replace("\t", " ")[:300] if lines else ""


def late(*_):
    raise Late


def main():
    signal.signal(signal.SIGALRM, late)
    cases = load()
    with open(RESULTS, "w", buffering=1) as out:
        for case in cases:
            out.write(f"plan\t{case.id()}\t0\t\n")
        for case in cases:
            began = time.monotonic()
            with tempfile.TemporaryFile() as prints:
                word, reason = in_child(case, prints)
                seconds = time.monotonic() - began
                reason = one_line(word, reason) + (last_words(prints) if word == "failed" else "")
            out.write(f"{word}\t{case.id()}\t{seconds:.1f}\t{reason}\n")


main()
