"""A real Ray cluster of this machine."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from rims_rl.jobs.engines.local import COMMAND
from tests.helpers.jobs import wait_until

RAY = Path(sys.executable).with_name("ray")


class Cluster:
    """Processes of Ray, with a token that only they know."""

    def __init__(self, folder):
        self.folder, self.nodes, self.commands = folder, [], []
        (folder / "token").write_text("0123456789abcdef" * 4)
        self.env = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.start("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false")

    def start(self, *options):
        """A node, when it is ready. Ray gives one 30 seconds to start, so that they start one after the other."""
        log = self.folder / f"{len(self.nodes)}.txt"
        more = ["--block", "--disable-usage-stats", "--object-store-memory=80000000", f"--temp-dir={self.folder}/ray"]
        with log.open("w") as file:
            node = subprocess.Popen([RAY, "start", *options, *more], stdout=file, stderr=file, env=self.env)
        self.nodes.append(node)
        wait_until(lambda: "will now block forever" in log.read_text() or node.poll() is not None)
        assert node.poll() is None, log.read_text()
        return node

    def run_suite(self, file, results, **env):
        words = ["suite", "run", file, "--results", results / "results", "--logdir", results / "logs"]
        words += ["--engine", "ray", "--ray-address", self.address]
        command = [sys.executable, "-c", COMMAND, *map(str, words)]
        with (results / "suite.txt").open("w") as log:
            self.commands.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.env | env))
        return self.commands[-1]

    def close(self):
        for process in [*self.commands, *reversed(self.nodes)]:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def ray_cluster():
    """A head, to which nodes can be added."""
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # paths of sockets must be short, and tmp_path is not
        cluster = Cluster(Path(folder))
        try:
            yield cluster
        finally:
            cluster.close()
