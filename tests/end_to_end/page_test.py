"""The page in a real browser: a chat answers, the picture follows the cluster, a plan's form shows plan and refusal."""

import contextlib
import json

from browser import Browser
from cluster import KILL, running, wait_for

CLUSTER = """machines:
- name: a
  devices: [{kind: RTX4090, count: 2}]
"""


@contextlib.contextmanager
def page(c, **options):
    browser = Browser(**options)
    try:
        browser.open(f"http://127.0.0.1:{c.port}/")
        yield browser
    finally:
        browser.stop()


def prepare():
    Browser().stop()  # skips the whole file where there is none


def use_keys(browser, api="", admin=""):
    wait_for("the question for keys", lambda: browser.run("return document.getElementById('keys').open"))
    browser.type("#api-key", api)
    browser.type("#admin-key", admin)
    browser.click("button[value=use]")


def count(browser, selector):
    return browser.run("return document.querySelectorAll(arguments[0]).length", selector)


def answered(browser):
    return wait_for("an answer", lambda: browser.run("""
        const answers = document.querySelectorAll(".message.assistant");
        const done = !document.getElementById("send").hidden;
        return done && answers.length ? answers[answers.length - 1].textContent.replace(/^Model/, "") : "";"""))


def test_a_chat_answers_with_timings_and_can_be_stopped():
    with running(workers=1) as c, page(c) as browser:
        browser.wait_for_text("#model", "tokens of context")
        browser.click("#options summary")
        browser.type("#max-tokens", "20")
        browser.type("#temperature", "0")
        browser.type("#question", "Count from 3 to 9.\ue007")
        first = answered(browser)
        body = {"messages": [{"role": "user", "content": "Count from 3 to 9."}], "max_tokens": 20, "temperature": 0}
        status, _, reply = c.request("POST", "/v1/chat/completions", body)
        assert status == 200
        said = json.loads(reply)["choices"][0]["message"]["content"]
        squeeze = lambda text: "".join(text.split())
        assert squeeze(said) in squeeze(first), (said, first)
        progress = browser.text("#chat-progress")
        assert "first token after" in progress and "tokens" in progress, progress
        # The whole conversation goes along, and the line that answers it is a new one.
        browser.type("#question", "And to 12?\ue007")
        wait_for("two answers", lambda: count(browser, ".message.assistant") == 2)
        answered(browser)
        assert count(browser, ".message.user") == 2
        browser.screenshot("chat_light")
        browser.colours("dark")
        browser.screenshot("chat_dark")
        # Stop closes the connection: the sequence is gone from the server.
        browser.click("#clear")
        browser.run("document.getElementById('max-tokens').value = ''")
        browser.type("#question", "Count from 1 to 90.\ue007")
        stopped = browser.run("""const stop = document.getElementById("stop");
                                 if (stop.hidden) return false;
                                 stop.click();
                                 return true;""")
        wait_for("an idle server", lambda: json.loads(c.get("/load")[2])["server_load"] == 0)
        wait_for("the send button", lambda: not browser.run("return document.getElementById('send').hidden"))
        assert stopped or answered(browser)
        assert browser.problems() == []


def test_what_a_model_writes_stays_text():
    """Markdown becomes elements of the page's own; HTML, scripts, pictures and odd links stay text."""
    with running(workers=1) as c, page(c) as browser:
        browser.run("""
            window.done = import("/page/markdown.js").then(({ MarkdownStream }) => {
              window.render = (text, size) => {
                const parent = document.createElement("div");
                const stream = new MarkdownStream(parent);
                for (let at = 0; at < text.length; at += size) stream.append(text.slice(at, at + size));
                document.body.append(parent);
                return parent.innerHTML;
              };
              window.ready = true;
            });""")
        wait_for("the module", lambda: browser.run("return window.ready === true"))

        def render(text):
            show = "return window.render(arguments[0], arguments[1])"
            whole = browser.run(show, text, 10**6)
            for size in (1, 2, 3, 7):  # the same, however it comes
                bits = browser.run(show, text, size)
                assert whole == bits, (size, whole, bits)
            return whole

        assert render("**b** and *i* and `c<d`") == "<p><strong>b</strong> and <em>i</em> and <code>c&lt;d</code></p>"
        assert render("# T\nx\n\n- a\n- b\n\n1. c") == \
            "<h3>T</h3><p>x</p><ul><li>a</li><li>b</li></ul><ol start=\"1\"><li>c</li></ol>"
        assert render("```py\na <b>\n\nc\n```\nd") == "<pre><code>a &lt;b&gt;\n\nc</code></pre><p>d</p>"
        assert "<td>1</td>" in render("|a|b|\n|-|-|\n|1|2|")
        assert render("|a|\n|-|\n|1|\n").count("<tr>") == 2
        assert render("> a\n> b\n") == "<blockquote><p>a\nb</p></blockquote>"
        # An answer that is cut within a fence, or right behind it.
        assert render("```python\na\n  b") == "<pre><code>a\n  b</code></pre>"
        assert render("~~~js\na `b`\n~~~") == "<pre><code>a `b`</code></pre>"
        for hostile in ("<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>",
                        "[x](javascript:alert(1))", "![x](data:text/html,<script>)", "<a href='//x'>y</a>"):
            html = render(hostile)
            tags = browser.run("""const made = document.body.lastElementChild.querySelectorAll("*");
                                  return [...made].map((e) => e.localName);""")
            assert tags == ["p"], (hostile, html, tags)
        link = render("[x](https://example.com/a)")
        assert 'rel="noopener noreferrer"' in link and 'href="https://example.com/a"' in link
        # Of a text of 50,000 tokens, a piece touches the last block only.
        touched = browser.run("""
            const parent = document.createElement("div");
            return import("/page/markdown.js").then(({ MarkdownStream }) => {
              const stream = new MarkdownStream(parent);
              const seen = [];
              for (let i = 0; i < 5000; ++i) {
                stream.append("ten tokens of **text** that go on and on " + (i % 40 == 39 ? "\\n\\n" : ""));
                if (i % 40 == 39) seen.push(parent.lastChild);
              }
              return [seen.every((node, i) => node === parent.children[i]), parent.children.length, stream.open.length];
            });""")
        assert touched == [True, 125, 0], touched
        assert browser.problems() == []


def test_the_picture_changes_when_a_worker_dies():
    with running("--open-loopback", workers=2) as c, page(c) as browser:
        browser.click("#tab-cluster")

        def boxes():
            return browser.run("""return [...document.querySelectorAll(".worker")].map((box) =>
                                  [box.dataset.worker, box.dataset.state]).sort()""")

        wait_for("both workers", lambda: boxes() == [["w0/0", "ready"], ["w1/0", "ready"]])
        assert "2 of 2 replicas serve" in browser.text("#cluster-summary")
        assert "layers 0–" in browser.text("#replicas")
        browser.screenshot("cluster_light")
        browser.colours("dark")
        browser.screenshot("cluster_dark")
        c.signal("w0", KILL)
        wait_for("the loss", lambda: dict(boxes()).get("w0/0") != "ready")
        browser.wait_for_text("#cluster-summary", "1 of")
        browser.screenshot("cluster_loss")
        assert browser.problems() == []


def test_the_form_shows_a_plan_and_a_refusal():
    with running("--open-loopback", workers=1) as c, page(c) as browser:
        browser.click("#tab-plan")
        browser.type("#plan-cluster", "machines:\n- name: a\n  devices: [{kind: RTX9999}]\n")
        browser.click("#make-plan")
        browser.wait_for_text("#plan-refusal", "RTX9999")
        browser.screenshot("plan_refused")
        browser.problems()  # a refusal is an error to the browser's log
        browser.run("document.getElementById('plan-cluster').value = ''")
        browser.type("#plan-cluster", CLUSTER)
        browser.type("#plan-model", "Qwen3-8B")
        browser.click("#make-plan")
        browser.wait_for_text("#planned", "tessera up Qwen3-8B --plan plan.json")
        assert "a/0" in browser.text("#planned-text")
        assert browser.run("return document.getElementById('save-plan').href.startsWith('blob:')")
        assert not browser.run("return document.getElementById('plan-refusal').hidden === false")
        browser.screenshot("plan_light")
        assert browser.problems() == []


def test_keys_are_asked_for_and_kept_in_memory_only(tmp):
    keys = tmp / "keys"
    keys.write_text("secret of users\n")
    with running("--api-key-file", str(keys), workers=1) as c, page(c) as browser:
        use_keys(browser, api="secret of users", admin=c.admin_key())
        browser.wait_for_text("#model", "tokens of context")
        browser.click("#tab-cluster")
        browser.wait_for_text("#cluster-summary", "replicas serve")
        stored = browser.run("return [localStorage.length, sessionStorage.length, document.cookie]")
        assert stored == [0, 0, ""], stored
        assert browser.run("return document.getElementById('api-key').value") == ""
        browser.open(f"http://127.0.0.1:{c.port}/?q=hello#hello")
        wait_for("the question for keys", lambda: browser.run("return document.getElementById('keys').open"))
        assert count(browser, ".message") == 0
        browser.screenshot("keys")


def test_it_works_by_keyboard_and_on_a_phone():
    with running("--open-loopback", workers=1) as c, page(c, width=500, height=800) as browser:
        browser.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}})
        browser.wait_for_text("#model", "tokens of context")
        browser.screenshot("phone_chat")
        browser.type("#tab-chat", "\ue014")  # the right arrow
        assert browser.run("return document.activeElement.id") == "tab-cluster"
        browser.wait_for_text("#cluster-summary", "replicas serve")
        browser.screenshot("phone_cluster")
        for view in ("chat", "cluster", "plan"):
            browser.click(f"#tab-{view}")
            width = browser.run("return document.documentElement.scrollWidth")
            assert width <= 360, (view, width)
        sizes = browser.run("return [...document.querySelectorAll('input, textarea, select')]"
                            ".map((e) => parseFloat(getComputedStyle(e).fontSize))")
        assert min(sizes) >= 16, sizes  # smaller ones make a phone zoom in
        browser.screenshot("phone_plan")
        assert browser.problems() == []
