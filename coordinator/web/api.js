// The calls of this page. Keys are variables of this module: no storage of the browser has them.

import { byId, showProblem } from "./dom.js";

const keys = { api: "", admin: "" };
let asking = null;  // the open question for keys

// What a refusal says, in words.
async function refusalOf(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    if (body.error && body.error.message) return body.error.message;
  } catch (error) {
    // Some other server's page.
  }
  return text.slice(0, 500) || `${response.status} ${response.statusText}`;
}

// Resolves to whether keys were given.
export function askForKeys(why) {
  if (asking) return asking;
  const dialog = byId("keys");
  byId("keys-why").textContent = why;
  byId("api-key").value = keys.api;
  byId("admin-key").value = keys.admin;
  dialog.returnValue = "cancel";
  asking = new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "use";
      if (given) {
        keys.api = byId("api-key").value;
        keys.admin = byId("admin-key").value;
      }
      byId("api-key").value = "";
      byId("admin-key").value = "";
      asking = null;
      resolve(given);
    }, { once: true });
  });
  dialog.showModal();
  return asking;
}

// `key`: "api" or "admin". `ask`: a call without its key asks for it and is made again.
// Throws an Error with the reason.
export async function call(path, { key = "api", body, signal, ask = true } = {}) {
  for (;;) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (keys[key]) headers.Authorization = `Bearer ${keys[key]}`;
    const response = await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, body, signal, cache: "no-store",
      credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    });
    if (response.ok) return response;
    const why = await refusalOf(response);
    const needsKey = response.status === 401 || (key === "admin" && response.status === 403);
    if (!needsKey || !ask || !(await askForKeys(why))) throw new Error(why);
  }
}

export async function callJson(path, options) {
  return (await call(path, options)).json();
}

// Runs `work`, and shows in `element` why it failed; an aborted call is no failure.
export async function guarded(element, work) {
  try {
    await work();
    showProblem(element, "");
  } catch (error) {
    if (error.name === "AbortError") return;
    const unreachable = error instanceof TypeError;
    showProblem(element, unreachable ? `The server does not answer (${error.message}).` : error.message);
  }
}

// Calls `onEvent` with the JSON of each server-sent event until "[DONE]".
export async function readEvents(response, onEvent) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += decoder.decode(value || new Uint8Array(), { stream: !done });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) onEvent(JSON.parse(data));
    }
    if (done) throw new Error("The connection ended before the answer did.");
  }
}
