# ruff: noqa: T201
"""A web service that answers with a network's results, and how long its clients wait, beside the same service on ONNX Runtime.

    python examples/web_service.py [MODEL] [--clients 16] [--requests 40] [--rounds 3] [--threads N]
    python examples/web_service.py --serve fusewise MODEL [--port 8000]

MODEL is an ONNX file with one input of floats whose first dimension is free; without one, a small convolutional network is made. A
request is the bytes of float32 numbers, as many rows as there are; the answer those of the first output. The service differs in one
line: which package is imported as `ort`.
"""

from __future__ import annotations

import argparse
import importlib
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

RUNTIMES = {"fusewise": "fusewise.onnxruntime", "onnxruntime": "onnxruntime"}
LARGEST_BATCH = 8


class Service(ThreadingHTTPServer):
    """A thread for each connection; all run one session."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], session: Any) -> None:
        self.session = session
        entry = session.get_inputs()[0]
        self.name, self.row = entry.name, tuple(entry.shape[1:])
        super().__init__(address, Answer)


class Answer(BaseHTTPRequestHandler):
    """Reads rows, runs the session, writes what it gives."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Service

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            rows = np.frombuffer(body, np.float32).reshape(-1, *self.server.row)
            status, found = 200, self.server.session.run(None, {self.server.name: rows})[0].tobytes()
        except Exception as error:  # the client's rows, or the model's limits
            status, found = 400, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *about: Any) -> None:
        """Nothing."""


def serve(runtime: str, model: str, threads: int, port: int) -> None:
    """Serve until the process is ended; the first line printed is the port."""
    ort = importlib.import_module(RUNTIMES[runtime])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        service = Service(("127.0.0.1", port), session)
    except Exception as error:  # no model, or no port that is free
        sys.exit(f"{model} cannot be served at port {port}: {error}")
    print(service.server_address[1], *service.row, flush=True)
    service.serve_forever()


@contextmanager
def served(runtime: str, model: Path, threads: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """A service in a process of its own: its port, and the shape of a row."""
    command = [sys.executable, __file__, "--serve", runtime, str(model), "--threads", str(threads), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().split()
            if not line:
                sys.exit(f"the service on {runtime} did not start")
            yield int(line[0]), tuple(map(int, line[1:]))
        finally:
            process.terminate()


def ask(connection: HTTPConnection, rows: np.ndarray) -> np.ndarray:
    """One request's answer, flat."""
    connection.request("POST", "/", rows.tobytes())
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise RuntimeError(body.decode())
    return np.frombuffer(body, np.float32)


def load(port: int, row: tuple[int, ...], clients: int, requests: int, seed: int) -> list[float]:
    """What each request of so many clients at the same time took, in seconds; batches are of any size up to the largest."""
    waited: list[float] = []

    def client(number: int) -> None:
        rng = np.random.default_rng((seed, number))
        connection = HTTPConnection("127.0.0.1", port)
        for _ in range(requests):
            rows = rng.random((int(rng.integers(1, LARGEST_BATCH + 1)), *row), np.float32)
            begin = time.perf_counter()
            ask(connection, rows)
            waited.append(time.perf_counter() - begin)
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return waited


def network(path: Path) -> Path:
    """A small convolutional network: images (batch, 3, 64, 64) in, ten scores out."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng, nodes, weights, last, width = np.random.default_rng(0), [], {}, "image", 3
    for number, (wider, stride) in enumerate([(16, 2), (32, 2), (32, 1), (64, 2)]):
        scale = math.sqrt(2 / (9 * width))
        weights[f"w{number}"] = rng.standard_normal((wider, width, 3, 3), np.float32) * np.float32(scale)
        nodes.append(
            helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1], strides=[stride, stride])
        )
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last, width = f"r{number}", wider
    weights["d"] = rng.standard_normal((width, 10), np.float32)
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "d"], ["scores"]))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *dims])
        for name, dims in (("image", (3, 64, 64)), ("scores", (10,)))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "network", ports[:1], ports[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compare(model: Path, asked: argparse.Namespace) -> None:
    """Both services take turns; the table has what clients waited."""
    waited: dict[str, list[float]] = {name: [] for name in RUNTIMES}
    took = dict.fromkeys(RUNTIMES, 0.0)
    with ExitStack() as stack:
        services = {name: stack.enter_context(served(name, model, asked.threads)) for name in RUNTIMES}
        answers = []
        for port, row in services.values():
            rows = np.random.default_rng(0).random((3, *row), np.float32)
            answers.append(ask(HTTPConnection("127.0.0.1", port), rows))
            load(port, row, asked.clients, max(4, asked.requests // 4), seed=0)
        for turn in range(asked.rounds):
            for name, (port, row) in services.items():
                time.sleep(0.1)  # workers of the one before go to sleep
                begin = time.perf_counter()
                waited[name] += load(port, row, asked.clients, asked.requests, seed=1 + turn)
                took[name] += time.perf_counter() - begin
    print(f"{asked.clients} clients, batches of 1 to {LARGEST_BATCH}; answers differ by {difference(*answers):.1e}")
    for name, times in waited.items():
        middle, last = (np.percentile(times, share) * 1e3 for share in (50, 99))
        print(f"{name:12} p50 {middle:7.2f} ms   p99 {last:7.2f} ms   {len(times) / took[name]:7.0f} answers/s")


def difference(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference over the largest magnitude."""
    return float(abs(found - wanted).max() / abs(wanted).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--serve", choices=RUNTIMES)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=40, help="of each client, in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of a session; 0: what the machine offers")
    asked = parser.parse_args()
    if asked.model and not Path(asked.model).is_file():
        parser.error(f"there is no file {asked.model}")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(asked.model) if asked.model else network(Path(folder) / "network.onnx")
        if asked.serve:
            serve(asked.serve, str(model), asked.threads, asked.port)
        else:
            compare(model, asked)


if __name__ == "__main__":
    main()
