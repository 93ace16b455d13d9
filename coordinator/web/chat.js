// The conversation: sent as a whole with each question, answered as a stream.

import { guarded, call, readEvents } from "./api.js";
import { byId, make, showProblem } from "./dom.js";
import { MarkdownStream } from "./markdown.js";

let conversation = [];  // messages as the API takes them
let running = null;  // AbortController of the answer under way

class AnswerView {
  constructor() {
    this.thinking = make("div", { class: "thinking" });
    this.fold = make("details", { hidden: true }, make("summary", {}, "Thinking"), this.thinking);
    this.body = make("div");
    this.element = make("article", { class: "message assistant" }, make("h3", {}, "Model"), this.fold, this.body);
    this.markdown = new MarkdownStream(this.body);
    this.content = "";
    this.reasoning = "";
    this.newContent = "";
    this.newReasoning = "";
    this.frame = 0;
  }

  add(delta) {
    const reasoning = delta.reasoning_content || "";
    this.content += delta.content || "";
    this.newContent += delta.content || "";
    this.reasoning += reasoning;
    this.newReasoning += reasoning;
    if (!this.frame) this.frame = requestAnimationFrame(() => this.render());
  }

  // Once per frame, whatever came since.
  render() {
    this.frame = 0;
    const list = byId("messages");
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    if (this.newReasoning) {
      this.fold.hidden = false;
      this.thinking.append(this.newReasoning);
    }
    if (this.newContent) this.markdown.append(this.newContent);
    this.newReasoning = "";
    this.newContent = "";
    if (atEnd) list.scrollTop = list.scrollHeight;
  }

  finish() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.render();
  }
}

function addMessage(element) {
  const list = byId("messages");
  list.append(element);
  list.scrollTop = list.scrollHeight;
}

// What the request says beside the conversation.
function options() {
  const body = {};
  if (byId("chat-model").value) body.model = byId("chat-model").value;
  const number = (id) => (byId(id).value === "" ? undefined : Number(byId(id).value));
  body.temperature = number("temperature");
  body.max_tokens = number("max-tokens");
  if (byId("thinking").value) body.chat_template_kwargs = { enable_thinking: byId("thinking").value === "true" };
  return body;
}

function showTimings(figures) {
  const parts = [];
  const seconds = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(0));
  if (figures.first !== null) parts.push(`first token after ${seconds(figures.first)} s`);
  if (figures.tokens > 1 && figures.last > figures.first)
    parts.push(`${((figures.tokens - 1) / (figures.last - figures.first)).toFixed(1)} tokens/s`);
  if (figures.tokens) parts.push(`${figures.tokens} tokens`);
  if (figures.timings) {
    const { prefill, decode, queue_seconds: queued } = figures.timings;
    if (queued > 0.005) parts.push(`queued ${seconds(queued)} s`);
    if (prefill && prefill.replica) parts.push(`prompt by ${prefill.replica} in ${seconds(prefill.seconds)} s`);
    if (decode && decode.replica && decode.replica !== prefill.replica) parts.push(`answer by ${decode.replica}`);
  }
  byId("chat-progress").textContent = parts.join(" · ");
}

async function answer(view) {
  const begun = performance.now();
  const figures = { first: null, last: 0, tokens: 0, timings: null };
  byId("chat-progress").textContent = "Reading the prompt …";
  const system = byId("system").value.trim();
  const messages = system ? [{ role: "system", content: system }, ...conversation] : conversation;
  const response = await call("/v1/chat/completions", {
    signal: running.signal,
    body: JSON.stringify({
      messages, stream: true, timings: true, ...options(),
      stream_options: { include_usage: true, continuous_usage_stats: true },
    }),
  });
  let finish = "";
  await readEvents(response, (event) => {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices && event.choices[0];
    if (event.usage && event.usage.completion_tokens > figures.tokens) {
      figures.last = (performance.now() - begun) / 1000;
      if (figures.first === null) figures.first = figures.last;
      figures.tokens = event.usage.completion_tokens;
    }
    if (event.timings) figures.timings = event.timings;
    if (choice) {
      view.add(choice.delta || {});
      finish = choice.finish_reason || finish;
    }
    showTimings(figures);
  });
  if (finish === "length") view.element.append(make("p", { class: "quiet" }, "Cut at the longest answer."));
}

async function send() {
  const question = byId("question").value;
  if (!question.trim() || running) return;
  running = new AbortController();
  conversation.push({ role: "user", content: question });
  addMessage(make("article", { class: "message user" }, make("h3", {}, "You"), question));
  byId("question").value = "";
  byId("send").hidden = true;
  byId("stop").hidden = false;
  const view = new AnswerView();
  addMessage(view.element);
  await guarded(byId("chat-problem"), () => answer(view));
  view.finish();
  if (view.content || view.reasoning) {
    conversation.push({ role: "assistant", content: view.content });
  } else {
    // Nothing came: the question may be sent again.
    view.element.remove();
    conversation.pop();
    byId("question").value ||= question;
    byId("messages").lastElementChild?.remove();
  }
  if (byId("chat-progress").textContent.startsWith("Reading")) byId("chat-progress").textContent = "";
  running = null;
  byId("send").hidden = false;
  byId("stop").hidden = true;
  byId("question").focus();
}

export function startChat() {
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("question").addEventListener("keydown", (event) => {
    // On a touch screen Enter is a new line: there is no Shift to hold.
    const touch = matchMedia("(pointer: coarse)").matches;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch) return;
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => running && running.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running && !byId("keys").open) running.abort();
  });
  byId("clear").addEventListener("click", () => {
    if (running) running.abort();
    conversation = [];
    byId("messages").replaceChildren();
    byId("chat-progress").textContent = "";
    showProblem(byId("chat-problem"), "");
    byId("question").focus();
  });
}
