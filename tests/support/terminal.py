"""A command on a terminal: what stands on the screen when it is done."""

import fcntl
import os
import pty
import struct
import sys
import termios

import pyte
import training_runs


def screen(words, columns, folder, lines=200):
    """(exit code, the lines of the screen) of `stsbench WORDS` in `folder`, its three streams a terminal this wide.
    It runs in a fork, which has imported everything."""
    training_runs.serve()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    arguments = ([*map(str, words)], os.ttyname(theirs), folder, environment)
    process = training_runs._context.Process(target=_run, args=arguments)
    drawn = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(drawn)
    process.start()
    opened = False
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux: the last process with the terminal has ended
            break
        if not opened:  # the command has it open: this process need not any more
            os.close(theirs)
            opened = True
        stream.feed(data)
    os.close(ours)
    process.join()
    return process.exitcode, [line.rstrip() for line in drawn.display]


def _run(words, terminal, folder, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    device = os.open(terminal, os.O_RDWR | os.O_NOCTTY)
    for stream in range(3):
        os.dup2(device, stream)
    os.close(device)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.path.insert(0, "")
    from stsbench.cli.main import main

    sys.argv = ["stsbench", *words]
    main()
