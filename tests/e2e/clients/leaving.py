"""For the programs of clients: what a server still computes after a client has left a stream."""

import time
import urllib.request

PATIENCE_S = 60


def ends(url):
    """Whether the server comes to have no request running, while this process and its connections live on."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        running = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running{")]
        if running and not any(running):
            return True
        time.sleep(0.05)
    return False
