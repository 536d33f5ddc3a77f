#!/usr/bin/env python3
"""Lists the messages that a user can see, for a reader who checks their words: every string of src/tessera that is passed
to fail(), warn(), note() and their like, or thrown in an Error, as FILE:LINE: MESSAGE.

    scripts/messages.py [FOLDER…]     # below src/tessera; by default all

A message that is put together from several strings is one line, with … for what stands between them. Exit code 0."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src" / "tessera"
CALLS = re.compile(r"\b(fail\w*|mistake|wrong\w*|refuse\w*|advise|note|warn\w*|report|Error|Defect|defect)\s*\(")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def arguments(text, start):
    """The text from an opening parenthesis to the one that closes it."""
    depth, at = 0, start
    while at < len(text):
        if literal := LITERAL.match(text, at):
            at = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            break
    return text[start:at]


def message_of(call):
    """Strings that follow each other are one; others have … between them."""
    message, end = "", None
    for literal in LITERAL.finditer(call):
        if end is not None and call[end:literal.start()].strip():
            message += " … "
        message += literal.group(1)
        end = literal.end()
    return message


def main():
    folders = [ROOT / name for name in sys.argv[1:]] or [ROOT]
    for path in sorted(path for folder in folders for path in folder.rglob("*.cpp")):
        code = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE)
        for call in CALLS.finditer(code):
            message = message_of(arguments(code, call.end() - 1))
            if message.count(" ") >= 2:
                line = code.count("\n", 0, call.start()) + 1
                print(f"{path.relative_to(ROOT)}:{line}: {message}")


if __name__ == "__main__":
    main()
