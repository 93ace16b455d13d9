// The plan in force, and plans for other clusters.

import { callJson, guarded } from "./api.js";
import { byId, make, rowsTable, showProblem } from "./dom.js";

let download = "";  // address of the newest plan.json

const figure = (value, digits = 1) => (value ? Number(value).toFixed(digits) : "–");

export async function showPlan() {
  await guarded(byId("plan-problem"), async () => {
    const running = await callJson("/v1/plan", { key: "admin" });
    const predicted = (running.plan && running.plan.prediction) || {};
    const measured = running.measured || {};
    byId("plan-text").textContent = running.text || running.no_plan ||
        "This plan was made without a description of the cluster: there are no predictions. The Cluster view shows it.";
    byId("plan-figures").replaceChildren(rowsTable(["", "predicted, fully used", "measured, last ten seconds"], [
      ["output tokens/s", figure(predicted.output_tokens_per_second), figure(measured.output_tokens_per_second)],
      ["requests/s", figure(predicted.requests_per_second, 2), figure(measured.requests_per_second, 2)],
      ["time to first token, s", figure(predicted.time_to_first_token_seconds, 2), figure(measured.time_to_first_token_seconds, 2)],
      ["time per token, s", figure(predicted.time_per_output_token_seconds, 3), figure(measured.time_per_output_token_seconds, 3)],
    ]));
  });
}

// A document as a member of another one: JSON is YAML too, and a block of YAML is indented.
function member(name, text) {
  return `${name}:\n${text.replace(/^---\s*\n/, "").split("\n").map((line) => `  ${line}`).join("\n")}\n`;
}

function request() {
  const model = byId("plan-model").value.trim();
  const prefer = byId("plan-prefer").value;
  const workload = byId("plan-workload").value;
  let text = member("cluster", byId("plan-cluster").value);
  if (model) text += `model: {name: ${JSON.stringify(model)}}\n`;
  const lengths = `{prompt_tokens: ${Number(byId("plan-prompt").value)}, output_tokens: ${Number(byId("plan-output").value)}}`;
  text += workload.trim() ? member("workload", workload) : `workload: {classes: [{lengths: [${lengths}]}]}\n`;
  if (prefer) text += `options: {prefer: ${prefer}}\n`;
  return text;
}

function showMade(reply) {
  const model = byId("plan-model").value.trim() || "MODEL";
  if (download) URL.revokeObjectURL(download);
  download = URL.createObjectURL(new Blob([JSON.stringify(reply.plan, null, 1)], { type: "application/json" }));
  const command = (text) => make("pre", {}, make("code", {}, text));
  byId("next-steps").replaceChildren(
      make("li", {}, make("a", { href: download, download: "plan.json", id: "save-plan" }, "Save plan.json"), "."),
      make("li", {}, "Serve it with new workers: ", command(`tessera up ${model} --plan plan.json`)),
      make("li", {}, "Or, where this coordinator serves that model on these machines, put it in force: ",
          command("tessera plan apply plan.json")));
  byId("planned-text").textContent = reply.text || "";
  byId("planned").hidden = false;
  byId("planned").scrollIntoView({ block: "start" });
}

async function makePlan() {
  byId("make-plan").disabled = true;
  byId("planned").hidden = true;
  showProblem(byId("plan-refusal"), "");
  byId("plan-state").textContent = "Planning, for a minute at most …";
  await guarded(byId("plan-refusal"), async () =>
      showMade(await callJson("/v1/plan", { key: "admin", body: request() })));
  if (!byId("plan-refusal").hidden) byId("plan-refusal").scrollIntoView({ block: "nearest" });
  byId("plan-state").textContent = "";
  byId("make-plan").disabled = false;
}

export function startPlan() {
  byId("plan-form").addEventListener("submit", (event) => {
    event.preventDefault();
    makePlan();
  });
}
