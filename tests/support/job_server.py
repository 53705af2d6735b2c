"""Processes of `stsbench train` and `eval` that start in a moment: forks of one that has imported everything.

`ServedStart` takes the place of stsbench.extensions.jobs.pool.start. Each job is a process as elsewhere: it has the
lock's file, its log, and can be killed."""

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import training_runs


@dataclass(frozen=True)
class ServedStart:
    """Starts a command in a fork of the server."""

    address: str

    def __call__(self, words, log, lock, place):
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.address)
        told = {"words": words, "folder": str(place.folder), "log": str(log), "environment": dict(place.environment)}
        socket.send_fds(client, [json.dumps(told).encode()], [lock])
        return ServedProcess(client, log.with_suffix(".pid"))


class ServedProcess:
    """A job's process: what `subprocess.Popen` is elsewhere."""

    def __init__(self, client, noted):
        self._stream, self._noted = client.makefile("r"), noted  # for those who kill from outside
        client.close()
        self.pid = int(self._stream.readline())
        noted.write_text(str(self.pid), "utf-8")

    def wait(self):
        code = int(self._stream.readline())
        self._noted.unlink()
        return code

    def terminate(self):
        self._kill(signal.SIGTERM)

    def kill(self):
        self._kill(signal.SIGKILL)

    def _kill(self, which):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, which)


class JobServer:
    """The server, as long as the block lasts: a fork of the process that training_runs forks all its trainings from."""

    def __init__(self, folder):
        self.address = str(folder / "jobs.socket")

    def __enter__(self):
        training_runs.serve()
        self._server = training_runs._context.Process(target=serve, args=(self.address,))
        self._server.start()
        while not Path(self.address).exists():
            assert self._server.is_alive()
            time.sleep(0.02)
        return ServedStart(self.address)

    def __exit__(self, *_):
        self._server.kill()
        self._server.join()


def serve(address):
    """Fork a process for each command that a client sends, and another one that waits for it."""
    for name in ("stsbench.cli.train", "stsbench.cli.eval", "stsbench.cli.messages", "stsbench.evaluation.api"):
        import_module(name)
    gc.freeze()
    server = socket.socket(socket.AF_UNIX)
    server.bind(address + ".new")
    server.listen(16)
    Path(address + ".new").rename(address)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        client, _ = server.accept()
        if not os.fork():
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(client)
        client.close()


def _attend(client):
    message, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 1)
    job = os.fork()
    if not job:
        client.close()
        _run(**json.loads(message))
    os.close(descriptors[0])  # the job has the lock, not who waits for it
    client.sendall(f"{job}\n".encode())
    client.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])}\n".encode())
    os._exit(0)


def _run(words, folder, log, environment):
    code = 9
    try:
        os.chdir(folder)
        stream = os.open(log, os.O_WRONLY | os.O_APPEND)
        os.dup2(stream, 1)
        os.dup2(stream, 2)
        os.environ.update(environment)
        sys.argv = ["stsbench", *words]
        from stsbench.cli.main import main

        main()
    except SystemExit as stop:
        code = stop.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
