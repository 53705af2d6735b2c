"""A command on a terminal: what stands on the screen when it is done."""

import fcntl
import os
import pty
import struct
import subprocess
import termios

import pyte


def screen(command, columns, lines=200, **options):
    """(exit code, the lines of the screen) of a command whose three streams are a terminal this wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, **options)
    os.close(theirs)
    drawn = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(drawn)
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux: the last process with the terminal has ended
            break
        if not data:
            break
        stream.feed(data)
    os.close(ours)
    return process.wait(), [line.rstrip() for line in drawn.display]
