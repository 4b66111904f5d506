"""The two halves of interop/page: `dumps DIRECTORY` writes what a job that hangs leaves, `click CHROMIUM DIRECTORY` reads its page.

Chromium is spoken to over its debugging pipe: JSON messages that end in a zero byte, on descriptors 3 and 4.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading

SECOND = 10**9
START = 1_700_000_000 * SECOND


def entry(rank, sequence, kind, state):
    at = START + (sequence + 1) * SECOND // 100 + rank * 1000
    return {
        "group": 0, "record": sequence, "sequence": sequence, "kind": kind, "is_message": False, "dtype": "f32",
        "reduce": None, "peer": None, "input": 8, "output": 8, "even": True,
        "site": {"file": "<b>train</b>.rs", "line": 10 + sequence, "function": None},
        "created_ns": at, "started_ns": at, "ended_ns": at + 5_000_000 if state == "done" else None,
        "state": state, "timeout_ns": None,
    }


def dumps(directory):
    """Rank 2 never comes to the last barrier."""
    os.makedirs(directory)
    for rank in range(3):
        entries = [entry(rank, sequence, "all_reduce", "done") for sequence in range(5)]
        entries += [entry(rank, 5, "barrier", "started")] if rank != 2 else []
        group = {"name": "world", "description": "", "epoch": 0, "members": [0, 1, 2], "forgotten": 0, "verdict": None}
        dump = {
            "format": 1, "rank": rank, "world_size": 3, "host_name": "host", "pid": rank + 1,
            "taken_ns": START + 10 * SECOND, "groups": [group], "entries": entries,
        }
        pathlib.Path(directory, f"trace_{rank}.json").write_text(json.dumps(dump))


class Browser:
    def __init__(self, chromium, profile):
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        # They are to be 3 and 4 over there, and may have any numbers here.
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command = ["bash", "-c", shell, "bash", chromium, *flags, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, pass_fds=[theirs_in, theirs_out], stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.answers = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb")
        self.number, self.session = 0, None
        # A browser that says nothing must not hold the test for ever.
        self.watch = threading.Timer(120, self.process.kill)
        self.watch.start()

    def close(self):
        self.watch.cancel()
        self.process.kill()
        self.process.wait()

    def read(self):
        message = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            if not byte:
                raise SystemExit("interop/page: Chromium ended")
            message += byte
        return json.loads(message)

    def ask(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        self.out.write(json.dumps(request).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"interop/page: {method}: {answer['error']}")
                return answer["result"]

    def open(self, address):
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Emulation.setDeviceMetricsOverride", width=1200, height=800, deviceScaleFactor=1, mobile=False)
        self.ask("Page.enable")
        self.ask("Page.navigate", url=address)
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"interop/page: {script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def mouse(self, kind, where, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=where["x"], y=where["y"], **more)

    def click(self, where):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, where, button="left", clickCount=1)


def expect(told, word):
    if word not in (told or ""):
        raise SystemExit(f"interop/page: expected {word!r} in {told!r}")


def click(chromium, directory):
    browser = Browser(chromium, f"{directory}/profile")
    try:
        browser.open(pathlib.Path(directory, "page.html").as_uri())
        expect(browser.run("document.querySelector('#verdicts li').textContent"), "rank 2 never called barrier 5")
        text = "document.querySelector('aside').innerText"
        waiting = "phalanx.operations.findIndex((o) => o.entry.kind === 'barrier' && o.lane === 1)"
        browser.click(browser.run(f"phalanx.where({waiting})"))
        for word in ("barrier 5 on rank 1", "started", "<b>train</b>.rs:15", "rank 2 never called barrier 5"):
            expect(browser.run(text), word)
        # The same after zooming in and moving: what is drawn and what is hit must agree.
        first = "phalanx.operations.findIndex((o) => o.entry.sequence === 3 && o.lane === 2)"
        where = browser.run(f"phalanx.where({first})")
        for _ in range(8):
            browser.mouse("mouseWheel", where, deltaX=0, deltaY=-200)
        browser.mouse("mousePressed", where, button="left", clickCount=1)
        browser.mouse("mouseMoved", {"x": where["x"] + 60, "y": where["y"]}, button="left", buttons=1)
        browser.mouse("mouseReleased", {"x": where["x"] + 60, "y": where["y"]}, button="left", clickCount=1)
        expect(browser.run(text), "barrier 5 on rank 1")
        browser.click(browser.run(f"phalanx.where({first})"))
        expect(browser.run(text), "all_reduce 3 on rank 2")
        if "rank 2 never called" in browser.run(text):
            raise SystemExit("interop/page: a verdict stands at an operation that it is not about")
        print("interop/page: the page shows what was found, and an operation that is clicked")
    finally:
        browser.close()


if __name__ == "__main__":
    {"dumps": dumps, "click": click}[sys.argv[1]](*sys.argv[2:])
