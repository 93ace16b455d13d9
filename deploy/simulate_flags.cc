#include <CLI/CLI.hpp>

#include "deploy/plan_command.h"
#include "deploy/simulate_command.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {

namespace {

void AddReplanning(CLI::App& simulate, SimulateFlags* flags) {
  simulate
      .add_option(
          "--replan", flags->replans,
          "Another plan takes over: \"next.json at 60 s\" or \"next.json after r0 lost "
          "5 s\" (r0 as in --change); \"new\" for the file plans then, for the machines without a "
          "lost replica. New replicas serve when their weights are there")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  simulate
      .add_option("--weight-read", flags->weight_read,
                  "For --replan: rate at which a machine reads weights from its disk")
      ->capture_default_str();
  simulate.add_option("--weight-network", flags->weight_network,
                      "For --replan: rate at which a machine gets weights over the network");
  simulate.add_flag("--move-keeps-weights", flags->move_keeps_weights,
                    "For --replan: workers keep weights that they hold");
}

void AddWorkflows(CLI::App& simulate, SimulateFlags* flags) {
  simulate.add_option("--workflows", flags->workflows,
                      "Agentic workflows instead of requests: \"generated\", or a file "
                      "(YAML, JSON; AgentWorkflows in proto/workload.proto)");
  simulate.add_option("--workflows-csv", flags->workflows_csv, "Write a line per workflow here");
  simulate
      .add_option("--alphas", flags->alphas,
                  "What tuning tries as the weight of a replica's speed against its load, 0..1; "
                  "default: 0.1,0.3,0.5,0.7,0.9")
      ->delimiter(',');
  simulate
      .add_option("--tuning-window", flags->tuning_window,
                  "Workflows in a replay: the most recent arrivals")
      ->check(WholeFrom(1))
      ->capture_default_str();
  simulate.add_option("--tuning-every", flags->tuning_every, "Arrivals between two replays")
      ->check(WholeFrom(1))
      ->capture_default_str();
}

}  // namespace

void AddSimulate(CLI::App& app, SimulateFlags* flags) {
  CLI::App* simulate = app.add_subcommand(
      "simulate", "Simulate a plan: latencies and throughput that users would see");
  simulate->add_option("plan", flags->plan, "plan.json, from tessera plan --out")->required();
  simulate->add_option("--cluster", flags->cluster, "The cluster's description, YAML or JSON")
      ->required();
  simulate->add_option("--model", flags->model, "As for tessera plan; default: the plan's");
  simulate->add_option("--workload", flags->workload,
                       "Description (YAML, JSON) or trace (.csv, .jsonl); default: --prompt, "
                       "--output");
  simulate
      ->add_option("--prompt", flags->prompt_tokens, "Tokens of a prompt; not beside --workload")
      ->check(WholeFrom(1))
      ->default_str(std::to_string(kUsualPromptTokens));
  simulate
      ->add_option("--output", flags->output_tokens, "Tokens of an answer; not beside --workload")
      ->check(WholeFrom(1))
      ->default_str(std::to_string(kUsualOutputTokens));
  simulate
      ->add_option(
          "--rate", flags->requests_per_second,
          "Requests per second; with --workflows whole workflows, each of several requests; 0: "
          "the workload's rate, else 85 % of the plan's")
      ->check(NonNegative());
  simulate
      ->add_option(
          "--requests", flags->requests,
          "How many requests to draw, with --workflows how many workflows; 0: as many requests as "
          "measuring the sustained rate takes, from 5000 to 60,000, or 500 workflows; a trace or "
          "a file of workflows has its own")
      ->check(Between(0, 100'000'000));
  simulate->add_option("--seed", flags->seed, "Seed of the random draws")->capture_default_str();
  simulate->add_option(
      "--routing", flags->routing,
      "router (as the coordinator: by load, within the plan's shares), load (without "
      "shares), shares (without load), round-robin; with --workflows: tuned, "
      "round-robin. Default: the first");
  simulate
      ->add_option("--cost-table", flags->cost_table,
                   "What steps cost: model (the planner's cost model), or distserve:FIT with "
                   "FIT 13B-TP1, 13B-TP2, 66B-TP4 or 66B-TP8 (latencies that DistServe's authors "
                   "fitted for OPT on A100-80)")
      ->capture_default_str();
  simulate
      ->add_option("--max-sequences", flags->max_sequences,
                   "Max concurrent sequences of a replica; 0: as planned")
      ->check(WholeFrom(0));
  simulate
      ->add_option("--max-batched-tokens", flags->max_batched_tokens,
                   "Max tokens of one step; 0: as planned")
      ->check(WholeFrom(0));
  simulate
      ->add_option(
          "--max-tokens", flags->max_tokens,
          "The limit that requests send, where longer answers end; 0: the longest answer of "
          "them all, which cuts none")
      ->check(WholeFrom(0));
  simulate->add_option("--max-ttft", flags->max_ttft,
                       "Max time to the first token, such as \"2 s\"");
  simulate->add_option("--max-tpot", flags->max_tpot,
                       "Max time per output token, such as \"150 ms\"");
  simulate->add_option("--max-e2e", flags->max_end_to_end,
                       "Max time of a request, such as \"30 s\"");
  simulate
      ->add_option("--change", flags->changes,
                   "Event during the run: \"r0 lost 10 s\", \"r0 back 40 s\", \"r1 slow 2.5 5 s\"")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddReplanning(*simulate, flags);
  AddWorkflows(*simulate, flags);
  simulate->add_option("--csv", flags->csv, "Write a line per request here");
  simulate->add_option("--rates-csv", flags->rates_csv, "Write figures over the rate here");
  simulate->add_option("--attainment-svg", flags->attainment_svg,
                       "Draw attainment over the rate here");
  simulate->add_option("--timeline-svg", flags->timeline_svg, "Draw queues and KV over time here");
}

}  // namespace tessera::deploy
