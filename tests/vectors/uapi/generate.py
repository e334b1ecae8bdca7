#!/usr/bin/env python3
"""Writes structs.csv and numbers.csv: what the C compiler makes of the kernel's RDMA headers on a 64-bit machine.

Only names are taken from the text of the headers; every offset, width and value comes from a program that the C compiler
translated with those headers (Debian: `apt-get install gcc linux-libc-dev`). `--check` compares instead of writing.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ["rdma_user_ioctl_cmds.h", "ib_user_ioctl_cmds.h", "ib_user_ioctl_verbs.h", "ib_user_verbs.h",
           "mlx5-abi.h", "mlx5_user_ioctl_cmds.h", "mlx5_user_ioctl_verbs.h", "ib_user_sa.h", "rdma_user_cm.h", "rdma_netlink.h"]
INCLUDE = pathlib.Path("/usr/include/rdma")
HERE = pathlib.Path(__file__).parent


def statements(body):
    """The declarations of a structure's body, each with its inner braces."""
    depth, start = 0, 0
    for at, character in enumerate(body):
        depth += (character == "{") - (character == "}")
        if character == ";" and depth == 0:
            yield body[start:at].strip()
            start = at + 1


def members(body):
    """Names of the members. An unnamed union stands for its own members; arrays without a length have no place."""
    for statement in statements(body):
        if inner := re.match(r"(?:union|struct)\s*\{(.*)\}\s*(\w*)(?:\s+__attribute__.*)?$", statement, re.S):
            yield from [inner[2]] if inner[2] else members(inner[1])
        elif pointer := re.match(r"RDMA_UAPI_PTR\([^,]*,\s*(\w+)\)", statement):
            yield pointer[1]
        elif name := re.search(r"(\w+)\s*(?:\[([^\]]*)\])?(?:\s*__attribute__\(\(.*\)\))?$", statement):
            if name[2] is None or name[2].strip() not in ("", "0"):
                yield name[1]


def blocks(text, keyword):
    """(name, body) of every `keyword name { ... }` at the top level."""
    for match in re.finditer(rf"^{keyword}\s*(\w*)\s*\{{", text, re.M):
        depth, at = 1, match.end()
        while depth:
            depth += (text[at] == "{") - (text[at] == "}")
            at += 1
        yield match[1], text[match.end():at - 1]


def program(text):
    lines = ["#include <stddef.h>", "#include <stdio.h>"] + [f"#include <rdma/{header}>" for header in HEADERS]
    lines.append("int main(int argc, char **argv) { (void)argv; if (argc == 1) {")
    for name, body in blocks(text, "struct"):
        lines.append(f'printf("{name},(sizeof),0,%zu\\n", sizeof(struct {name}));')
        for member in members(body):
            place = f"offsetof(struct {name}, {member}), sizeof(((struct {name} *)0)->{member})"
            lines.append(f'printf("{name},{member},%zu,%zu\\n", {place});')
    lines.append("} else {")
    for _, body in blocks(text, "enum"):
        for member in re.findall(r"^\s*([A-Z]\w+)\s*(?:=[^,]*)?(?:,|$)", body, re.M):
            lines.append(f'printf("{member},%lld\\n", (long long){member});')
    return "\n".join(lines + ["} return 0; }"])


def tables():
    text = "\n".join((INCLUDE / header).read_text() for header in HEADERS)
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    with tempfile.TemporaryDirectory() as directory:
        source, binary = pathlib.Path(directory, "layout.c"), pathlib.Path(directory, "layout")
        source.write_text(program(text))
        subprocess.run(["cc", "-o", binary, source], check=True)
        run = lambda *arguments: subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout
        return {"structs.csv": "struct,field,byte_offset,byte_width\n" + run(),
                "numbers.csv": "name,value\n" + run("numbers")}


def main():
    different = []
    for name, table in tables().items():
        path = HERE / name
        if sys.argv[1:] == ["--check"]:
            different += [name] if path.read_text() != table else []
        else:
            path.write_text(table)
    sys.exit(f"differ from what the headers of this machine say: {', '.join(different)}" if different else 0)


main()
