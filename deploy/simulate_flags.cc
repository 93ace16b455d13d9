
#include "deploy/plan_command.h"
#include "deploy/simulate_command.h"
#include "third_party/cli11/flags.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {

namespace {

void AddReplanning(const Command& simulate, SimulateFlags* flags) {
  simulate
      .AddOption(
          "--replan", flags->replans,
          "Switch to another plan: \"next.json at 60 s\" or \"next.json after r0 lost 5 s\" (r0 as "
          "in --change); \"new\" instead of a file plans at that time for the machines without a "
          "lost replica. New replicas serve once their weights are loaded")
      .Repeatable();
  simulate
      .AddOption("--weight-read", flags->weight_read,
                 "For --replan: rate at which a machine reads weights from its disk")
      .ShowDefault();
  simulate.AddOption("--weight-network", flags->weight_network,
                     "For --replan: rate at which a machine gets weights over the network");
  simulate.AddSwitch("--move-keeps-weights", flags->move_keeps_weights,
                     "For --replan: workers keep the weights they hold");
}

void AddWorkflows(const Command& simulate, SimulateFlags* flags) {
  simulate.AddOption("--workflows", flags->workflows,
                     "Agentic workflows instead of requests: \"generated\", or a file "
                     "(YAML, JSON; AgentWorkflows in proto/workload.proto)");
  simulate.AddOption("--workflows-csv", flags->workflows_csv, "CSV file for one line per workflow");
  simulate
      .AddOption("--alphas", flags->alphas,
                 "Weights of a replica's speed against its load that tuning tries, 0 to 1; "
                 "default: 0.1,0.3,0.5,0.7,0.9")
      .Delimiter(',');
  simulate
      .AddOption("--tuning-window", flags->tuning_window,
                 "Workflows in each replay of the tuning: the most recent arrivals")
      .Check(WholeFrom(1))
      .ShowDefault();
  simulate
      .AddOption("--tuning-every", flags->tuning_every,
                 "Arrivals between two replays of the tuning")
      .Check(WholeFrom(1))
      .ShowDefault();
}

}  // namespace

void AddSimulate(const Command& app, SimulateFlags* flags) {
  const Command simulate = app.AddSubcommand(
      "simulate", "Simulate a plan: latencies and throughput that users would see");
  simulate.AddOption("plan", flags->plan, "plan.json, from tessera plan --out").Required();
  simulate.AddOption("--cluster", flags->cluster, "The cluster's description, YAML or JSON")
      .Required();
  simulate.AddOption("--model", flags->model, "As for tessera plan; default: the plan's");
  simulate.AddOption("--workload", flags->workload,
                     "Description (YAML, JSON) or trace (.csv, .jsonl); default: --prompt, "
                     "--output");
  simulate
      .AddOption("--prompt", flags->prompt_tokens,
                 "Tokens of a prompt; not together with --workload")
      .Check(WholeFrom(1))
      .ShowDefault(std::to_string(kUsualPromptTokens));
  simulate
      .AddOption("--output", flags->output_tokens,
                 "Tokens of an answer; not together with --workload")
      .Check(WholeFrom(1))
      .ShowDefault(std::to_string(kUsualOutputTokens));
  simulate
      .AddOption(
          "--rate", flags->requests_per_second,
          "Requests per second; with --workflows whole workflows, each of several requests; 0: "
          "the workload's rate, else 85 % of the plan's")
      .Check(NonNegative());
  simulate
      .AddOption("--requests", flags->requests,
                 "Requests to draw, or workflows with --workflows; 0: enough requests to measure "
                 "the sustained rate, 5,000 to 60,000, or 500 workflows; a trace or a file of "
                 "workflows sets its own number")
      .Check(Between(0, 100'000'000));
  simulate.AddOption("--seed", flags->seed, "Seed of the random draws").ShowDefault();
  simulate.AddOption(
      "--routing", flags->routing,
      "router (as the coordinator: by load, within the plan's shares), load (without "
      "shares), shares (without load), round-robin; with --workflows: tuned, "
      "round-robin. Default: the first");
  simulate
      .AddOption("--cost-table", flags->cost_table,
                 "Costs of steps: model (the planner's cost model), or distserve:FIT with "
                 "FIT 13B-TP1, 13B-TP2, 66B-TP4 or 66B-TP8 (latencies that DistServe's authors "
                 "fitted for OPT on A100-80)")
      .ShowDefault();
  simulate
      .AddOption("--max-sequences", flags->max_sequences,
                 "Max concurrent sequences of a replica; 0: as planned")
      .Check(WholeFrom(0));
  simulate
      .AddOption("--max-batched-tokens", flags->max_batched_tokens,
                 "Max tokens of one step; 0: as planned")
      .Check(WholeFrom(0));
  simulate
      .AddOption("--max-tokens", flags->max_tokens,
                 "max_tokens of every request, where longer answers end; 0: the longest answer, so "
                 "that none is cut")
      .Check(WholeFrom(0));
  simulate.AddOption("--max-ttft", flags->max_ttft, "Max time to the first token, such as \"2 s\"");
  simulate.AddOption("--max-tpot", flags->max_tpot,
                     "Max time per output token, such as \"150 ms\"");
  simulate.AddOption("--max-e2e", flags->max_end_to_end, "Max time of a request, such as \"30 s\"");
  simulate
      .AddOption("--change", flags->changes,
                 "Event during the run: \"r0 lost 10 s\", \"r0 back 40 s\", \"r1 slow 2.5 5 s\"")
      .Repeatable();
  AddReplanning(simulate, flags);
  AddWorkflows(simulate, flags);
  simulate.AddOption("--csv", flags->csv, "CSV file for one line per request");
  simulate.AddOption("--rates-csv", flags->rates_csv, "CSV file for figures by request rate");
  simulate.AddOption("--attainment-svg", flags->attainment_svg,
                     "SVG file for attainment by request rate");
  simulate.AddOption("--timeline-svg", flags->timeline_svg, "SVG file for queues and KV over time");
}

}  // namespace tessera::deploy
