#!/usr/bin/env python3
"""Writes layout.csv: where the C compiler puts those members of libibverbs' structures that `bareverbs run` replaces or looks at.

Every number comes from a program that the C compiler translated with the header that programs use (Debian: `apt-get install gcc
libibverbs-dev`). `--check` compares instead of writing.
"""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
MEMBERS = [("ibv_context", ["(sizeof)", "ops.poll_cq", "ops.post_send", "cmd_fd", "abi_compat"]),
           ("verbs_context", ["create_qp_ex", "sz"]),
           ("ibv_qp", ["(sizeof)", "context"]),
           ("ibv_qp_ex", ["wr_complete"])]


def row(structure, member):
    if member == "(sizeof)":
        return f'printf("{structure},(sizeof),0,%zu\\n", sizeof(struct {structure}));'
    offset = f"offsetof(struct {structure}, {member})"
    if structure == "verbs_context":
        # It grows at its beginning; what it has in common with older ones is counted from its end.
        offset = f"offsetof(struct verbs_context, context) - {offset}"
    return f'printf("{structure},{member},%zu,%zu\\n", {offset}, sizeof(((struct {structure} *)0)->{member}));'


def table():
    rows = "\n".join(row(structure, member) for structure, members in MEMBERS for member in members)
    text = f"#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\nint main(void) {{ {rows} return 0; }}\n"
    with tempfile.TemporaryDirectory() as directory:
        source, binary = pathlib.Path(directory, "layout.c"), pathlib.Path(directory, "layout")
        source.write_text(text)
        subprocess.run(["cc", "-o", binary, source], check=True)
        return "structure,member,byte_offset,byte_width\n" + subprocess.run([binary], check=True, capture_output=True, text=True).stdout


def main():
    path = HERE / "layout.csv"
    if sys.argv[1:] != ["--check"]:
        path.write_text(table())
    elif path.read_text() != table():
        sys.exit("layout.csv differs from what the header of this machine says")


main()
