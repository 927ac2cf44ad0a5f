#!/usr/bin/env python3
"""A real browser for tests: Chromium without a window, driven line by line on stdin; one line of answer each.

    open URL            loads it                       eval JS           says what it yields, as JSON
    wait JS             until it is true (20 s)        click SELECTOR    with the mouse, in the middle of it
    key NAME            presses it                     size WIDTH HEIGHT of the window
    dark on|off         colour scheme                  shot FILE         a PNG of the whole page
    run FILE            as eval, of a script in a file
    problems            uncaught errors and what the policy of content blocked, as JSON
    fake PATH FILE      answers requests for that path with a file (- = not any more, ! = not found)

The answer is `ok`, the value, or `error WHY`. Talks over a pipe, so no port is opened.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time


class Browser:
    def __init__(self, command):
        self.profile = tempfile.mkdtemp(prefix="lowtide-browser.")
        to_read, self.to = os.pipe()
        self.answers, from_write = os.pipe()

        def descriptors():
            os.dup2(to_read, 13), os.dup2(from_write, 14)
            os.dup2(13, 3), os.dup2(14, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen([command, *flags], preexec_fn=descriptors, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(from_write)
        self.rest, self.number, self.session, self.fakes, self.problems = b"", 0, None, {}, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Fetch"):
            self.call(f"{domain}.enable")

    def send(self, method, parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        return self.number

    def receive(self):
        while b"\0" not in self.rest:
            some = os.read(self.answers, 1 << 20)
            if not some:
                raise RuntimeError("the browser has ended")
            self.rest += some
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        number = self.send(method, parameters)
        while True:
            message = self.receive()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                return message["result"]
            self.event(message)

    def event(self, message):
        parameters = message.get("params", {})
        if message.get("method") == "Fetch.requestPaused":
            path = parameters["request"]["url"].split("/", 3)[-1]
            fake = self.fakes.get("/" + path)
            request = {"requestId": parameters["requestId"]}
            if fake is None:
                self.send("Fetch.continueRequest", request)
            elif fake == "!":
                self.send("Fetch.fulfillRequest", {**request, "responseCode": 404})
            else:
                body = base64.b64encode(open(fake, "rb").read()).decode()
                headers = [{"name": "Content-Type", "value": "application/json"}]
                self.send("Fetch.fulfillRequest", {**request, "responseCode": 200, "responseHeaders": headers, "body": body})
        elif message.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"].get("source") == "security":
            self.problems.append(parameters["entry"]["text"])

    def eval(self, text):
        result = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def run(self, file):
        self.eval(open(file, encoding="utf-8").read() + "\n;0")
        return "ok"

    def wait(self, text):
        end = time.monotonic() + 20
        while not self.eval(f"Boolean({text})"):
            if time.monotonic() > end:
                raise RuntimeError(f"not in 20 s: {text}")
            time.sleep(0.1)
        return "ok"

    def click(self, selector):
        self.eval(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        box = self.eval(f"(b => [b.x + Math.min(b.width / 2, 40), b.y + b.height / 2])"
                        f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)
        return "ok"

    def key(self, name):
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27}
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name],
                      **(text if kind == "keyDown" else {}))
        return "ok"

    def open(self, url):
        self.call("Page.navigate", url=url)
        return self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=int(width), height=int(height), deviceScaleFactor=1,
                  mobile=False)
        return "ok"

    def dark(self, on):
        features = [{"name": "prefers-color-scheme", "value": "dark" if on == "on" else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        return "ok"

    def shot(self, file):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        with open(file, "wb") as out:
            out.write(base64.b64decode(picture["data"]))
        return "ok"

    def fake(self, path, file):
        self.fakes[path] = None if file == "-" else file
        return "ok"

    def end(self):
        self.session = None
        try:
            self.send("Browser.close", {})
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


def main():
    # Ends as at the end of its input, so that neither Chromium nor its profile is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    browser = Browser(sys.argv[1])
    try:
        print("ok", flush=True)
        for line in sys.stdin:
            word, _, rest = line.rstrip("\n").partition(" ")
            try:
                if word == "eval":
                    value = browser.eval(rest)
                    answer = value if isinstance(value, str) else json.dumps(value)
                elif word == "problems":
                    answer = json.dumps(browser.problems)
                elif word in ("wait", "click", "open", "run", "key", "dark", "shot"):
                    answer = getattr(browser, word)(rest)
                else:
                    answer = getattr(browser, word)(*rest.split(" "))
            except RuntimeError as error:
                answer = "error " + str(error).replace("\n", " ")
            print(answer.replace("\n", " "), flush=True)
    finally:
        browser.end()


main()
