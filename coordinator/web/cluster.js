// The cluster as it is now: replicas with their stages in order, who holds what, and what goes over the links.

import { callJson, guarded } from "./api.js";
import { byId, bytesText, make, rowsTable } from "./dom.js";

const kSeconds = 2;  // between two pictures
let timer = 0;
let shownOnce = false;

const stateOf = (worker) => (worker.state || "WORKER_STATE_UNSPECIFIED").replace("WORKER_STATE_", "").toLowerCase();
const count = (value) => Number(value || 0);
const rate = (value) => (count(value) < 10 ? count(value).toFixed(1) : Math.round(count(value)).toString());

function bar(text, share) {
  const percent = Math.round(100 * share);
  return make("div", {}, `${text} ${percent} %`,
      make("meter", { min: 0, max: 1, high: 0.95, value: share, "aria-label": text }));
}

function rangeText(range) {
  const begin = count(range && range.begin);
  const end = count(range && range.end);
  return end - begin === 1 ? `layer ${begin}` : `layers ${begin}–${end - 1}`;
}

// `planned`: the worker's part in the plan; `live`: as it is, absent where none has registered.
function workerBox(planned, live) {
  const state = live ? stateOf(live) : "missing";
  const box = make("div", { class: `worker ${state}`, "data-worker": planned.device, "data-state": state },
      make("h4", {}, planned.device));
  const kind = planned.kind || (live && live.device && live.device.kind);
  box.append(make("div", {}, make("span", { class: "state" }, state), kind ? ` · ${kind}` : ""));
  if (live && live.detail && state !== "ready") box.append(make("div", {}, live.detail));
  const held = [];
  if (planned.fraction && planned.fraction < 1) held.push(`${Math.round(100 * planned.fraction)} % of each layer`);
  if (count(planned.weight_bytes)) held.push(`${bytesText(planned.weight_bytes)} weights`);
  if (count(planned.kv_bytes)) held.push(`${bytesText(planned.kv_bytes)} KV`);
  if (held.length) box.append(make("div", { class: "quiet" }, held.join(" · ")));
  if (!live || state !== "ready") return box;
  if (live.busy_share !== undefined) box.append(bar("busy", live.busy_share));
  const load = live.load || {};
  if (count(load.kv_blocks_total)) box.append(bar("KV in use", count(load.kv_blocks_used) / count(load.kv_blocks_total)));
  if (count(load.running) + count(load.waiting))
    box.append(make("div", {}, `${count(load.running)} running, ${count(load.waiting)} waiting`));
  return box;
}

// The way from one stage to the next.
function hopBetween(from, to, workers) {
  const names = new Set(to.workers.map((worker) => worker.device));
  const text = [];
  for (const worker of from.workers) {
    const live = workers.get(worker.device);
    for (const link of (live && live.links) || []) {
      if (names.has(link.peer)) text.push(`${link.transport} ${bytesText(link.bytes_sent)}`);
    }
  }
  return make("div", { class: "hop" }, make("b", { "aria-hidden": true }, "→"), text[0] || "");
}

function replicaBox(replica, status, workers) {
  const role = (replica.role || "").replace("REPLICA_ROLE_", "").toLowerCase();
  const ready = status && status.ready;
  const box = make("article", { class: "replica", "data-replica": replica.name, "data-ready": ready ? "true" : "false" });
  box.append(make("h3", {}, `Replica ${replica.name}`, role && role !== "both" ? ` (${role})` : "", ready ? "" : " – not serving"));
  if (status) {
    const planned = count(status.planned_generation_tokens_per_second);
    box.append(make("p", { class: "quiet" },
        `${rate(status.generation_tokens_per_second)} tokens/s generated${planned ? ` of ${rate(planned)} planned` : ""}, ` +
        `${rate(status.prompt_tokens_per_second)} tokens/s of prompts`));
    if (status.detail) box.append(make("p", {}, status.detail));
  }
  const stages = make("div", { class: "stages" });
  (replica.stages || []).forEach((stage, index) => {
    if (index > 0) stages.append(hopBetween(replica.stages[index - 1], stage, workers));
    const share = stage.workers[0].share || {};
    const several = stage.workers.length > 1 ? ` · ${stage.workers.length} share each layer` : "";
    stages.append(make("div", { class: "stage" }, make("h4", {}, `${rangeText(share.layers)}${several}`),
        ...stage.workers.map((worker) => workerBox(worker, workers.get(worker.device)))));
  });
  box.append(stages);
  return box;
}

function linkRows(cluster) {
  const rows = [];
  for (const worker of cluster.workers || []) {
    for (const link of worker.links || []) {
      rows.push([worker.name, link.peer || "–", (link.kind || "").replace("LINK_KIND_", "").toLowerCase(), link.transport || "",
        bytesText(link.bytes_sent), count(link.received_bytes_per_second) ? `${bytesText(link.received_bytes_per_second)}/s` : "–",
        count(link.planned_bytes_per_second) ? `${bytesText(link.planned_bytes_per_second)}/s` : "–"]);
    }
  }
  return rows;
}

function draw(cluster) {
  const workers = new Map((cluster.workers || []).map((worker) => [worker.name, worker]));
  const statuses = new Map((cluster.replicas || []).map((replica) => [replica.name, replica]));
  const plan = cluster.plan || {};
  const replicas = plan.replicas || [];
  const ready = (cluster.replicas || []).filter((replica) => replica.ready).length;
  byId("cluster-summary").textContent = [
    `${(cluster.models || [cluster]).map((model) => model.name || cluster.model).join(", ")}: ${ready} of ${replicas.length} replicas serve`,
    `${count(cluster.requests_in_flight)} requests`, `${count(cluster.sequences_running)} sequences run`,
    `${count(cluster.sequences_waiting)} wait`, cluster.applying, cluster.no_plan].filter(Boolean).join(" · ");
  byId("replicas").replaceChildren(...replicas.map((replica) => replicaBox(replica, statuses.get(replica.name), workers)));
  const planned = new Set(replicas.flatMap((replica) => replica.stages.flatMap((stage) => stage.workers.map((w) => w.device))));
  const spare = [...workers.values()].filter((worker) => !planned.has(worker.name));
  byId("spare").replaceChildren(...(spare.length ? [make("h3", {}, "Workers outside the plan"),
    make("div", { class: "stages" }, ...spare.map((worker) => workerBox({ device: worker.name }, worker)))] : []));
  const rows = linkRows(cluster);
  const handed = (cluster.hand_overs || []).map((pair) => [pair.prefill_replica, pair.decode_replica, count(pair.prompts),
    bytesText(pair.bytes), pair.transport || "–", count(pair.failures)]);
  byId("links").replaceChildren(
      ...(rows.length ? [make("h3", {}, "Links"),
        rowsTable(["from", "to", "carries", "over", "sent", "measured", "planned"], rows)] : []),
      ...(handed.length ? [make("h3", {}, "Prompts handed over"),
        rowsTable(["from", "to", "prompts", "bytes", "over", "failed"], handed)] : []));
}

async function refresh(ask) {
  clearTimeout(timer);
  await guarded(byId("cluster-problem"), async () => draw(await callJson("/v1/cluster", { key: "admin", ask })));
  if (!byId("cluster").hidden) timer = setTimeout(() => refresh(false), 1000 * kSeconds);
}

// The view comes to the front. Keys are asked for once, not by every picture.
export function showCluster() {
  refresh(!shownOnce);
  shownOnce = true;
}
