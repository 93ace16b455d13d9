// Views and what they begin with. Query strings and fragments do nothing: no link makes this page act.

import { askForKeys, callJson, guarded } from "./api.js";
import { startChat } from "./chat.js";
import { showCluster } from "./cluster.js";
import { byId, make } from "./dom.js";
import { showPlan, startPlan } from "./plan.js";

const kViews = ["chat", "cluster", "plan"];

function show(view) {
  for (const name of kViews) {
    const chosen = name === view;
    byId(name).hidden = !chosen;
    byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
    byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
  }
  if (view === "cluster") showCluster();
  if (view === "plan") showPlan();
  if (view === "chat") byId("question").focus();
}

async function showModel() {
  await guarded(byId("chat-problem"), async () => {
    const models = (await callJson("/v1/models")).data;
    const pick = byId("chat-model");
    const showPicked = () => {
      const model = models.find((one) => one.id === pick.value) || models[0];
      byId("model").textContent = `${model.id} · ${model.max_model_len} tokens of context`;
      document.title = `${model.id} – Tessera`;
    };
    pick.replaceChildren(...models.map((model) => make("option", { value: model.id }, model.id)));
    byId("pick-model").hidden = models.length < 2;
    pick.onchange = showPicked;
    showPicked();
  });
}

for (const [index, name] of kViews.entries()) {
  byId(`tab-${name}`).addEventListener("click", () => show(name));
  byId(`tab-${name}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = kViews[(index + step + kViews.length) % kViews.length];
    show(next);
    byId(`tab-${next}`).focus();
  });
}
byId("open-keys").addEventListener("click", async () => {
  if (await askForKeys("")) {
    showModel();
    show(kViews.find((name) => !byId(name).hidden));
  }
});
startChat();
startPlan();
showModel();
