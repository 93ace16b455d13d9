#include "deploy/rehearse_command.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/plan_file.h"
#include "deploy/rehearsal/rehearsal_folder.h"
#include "deploy/rehearsal/rehearsal_report.h"
#include "deploy/rehearsal/request_player.h"
#include "deploy/rehearsal_processes.h"
#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/workload_file.h"
#include "scheduler/input/workload_samples.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/simulator/arrivals.h"
#include "scheduler/simulator/plan_replicas.h"
#include "scheduler/simulator/report.h"
#include "scheduler/simulator/simulator.h"
#include "third_party/cli11/flags.h"
#include "third_party/cli11/number_check.h"

namespace tessera::deploy {
namespace {

namespace fs = std::filesystem;

// Flags have been read: what they were set by is not for the programs that are started.
void ForgetVariables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.starts_with("TESSERA_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

constexpr double kDefaultLoad = 0.85;
// For answers behind the last arrival, of the workload's time: as long as the longest of the
// simulation took, so often, and so many seconds more.
constexpr double kPatience = 3, kMorePatienceSeconds = 30;
constexpr double kMaxRequests = 1e6;
constexpr std::chrono::milliseconds kLook(50);

struct Kill {
  std::string machine;
  double at_seconds = 0;
};

class Rehearsal {
 public:
  explicit Rehearsal(const RehearseFlags& flags) : flags_(flags) {}

  absl::StatusOr<std::string> Run() {
    ForgetVariables();
    absl::Status status = ReadPlan();
    if (status.ok()) status = ReadRequests();
    if (status.ok()) status = ReadKill();
    if (status.ok()) status = Promise();
    if (status.ok()) status = MakeFolder();
    if (!status.ok()) return status;
    std::cerr << "rehearsing " << facts_.requests << " requests; logs are in " << folder_
              << std::endl;
    auto processes = RehearsalProcesses::Start(
        {.folder = folder_, .bin_dir = flags_.bin_dir, .speed = flags_.speed}, plan_);
    if (!processes.ok()) return processes.status();
    if (absl::Status s = PlayAll(**processes); !s.ok()) return s;
    processes->reset();  // they write their last figures
    facts_.lateness = ReadLateness(folder_);
    return flags_.json ? RehearsalJson(facts_) : RehearsalText(facts_);
  }

 private:
  absl::Status ReadPlan() {
    auto plan = ReadPlanFile(flags_.plan);
    if (!plan.ok()) return plan.status();
    plan_ = *std::move(plan);
    catalogue_ = *scheduler::BuiltInDevices();
    cluster_ = ClusterOfPlan(plan_);
    if (!flags_.cluster.empty()) {
      cluster_.Clear();
      if (absl::Status s = ReadDocumentFile(flags_.cluster, &cluster_); !s.ok()) return s;
      const absl::Status fits = scheduler::CheckPlanOn(plan_, cluster_, catalogue_);
      if (!fits.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(flags_.plan, ": ", std::string(fits.message()),
                         "; --cluster must describe the cluster that the plan was made for"));
      }
    }
    auto graph = scheduler::MakeClusterGraph(cluster_, catalogue_, ClusterName());
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
    auto replicas = scheduler::ReplicasOfPlan(plan_, graph_, {});
    if (!replicas.ok())
      return absl::InvalidArgumentError(
          absl::StrCat(flags_.plan, ": ", std::string(replicas.status().message())));
    replicas_ = *std::move(replicas);
    facts_.plan_file = flags_.plan;
    facts_.model = plan_.model().name();
    facts_.replicas = static_cast<size_t>(plan_.replicas_size());
    facts_.speed = flags_.speed;
    facts_.load_seconds = plan_.move().load_seconds();
    facts_.knows_links = !flags_.cluster.empty();
    for (const v1::RoutingShare& share : plan_.routing())
      facts_.hands_over |= share.prefill_replica() != share.decode_replica();
    return absl::OkStatus();
  }

  std::string ClusterName() const {
    return flags_.cluster.empty() ? absl::StrCat(flags_.plan, " (its machines)") : flags_.cluster;
  }

  // The lengths that the plan is for, where there is no workload.
  absl::StatusOr<scheduler::WorkloadFile> ReadWorkload() const {
    if (!flags_.workload.empty()) return scheduler::ReadWorkloadFile(flags_.workload);
    const v1::PlanBasis& basis = plan_.basis();
    if (basis.prompt_tokens() < 1 || basis.output_tokens() < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          flags_.plan, " does not say for which lengths it was made: give --workload FILE"));
    }
    scheduler::WorkloadFile file;
    v1::WorkloadClass& one = *file.workload.add_classes();
    one.set_share(1);
    one.set_prefix_hit_rate(1 - basis.uncached_prompt_tokens() / basis.prompt_tokens());
    v1::LengthSample& lengths = *one.add_lengths();
    lengths.set_prompt_tokens(std::llround(basis.prompt_tokens()));
    lengths.set_output_tokens(std::llround(basis.output_tokens()));
    file.workload.set_arrival_variation(basis.arrival_variation());
    return file;
  }

  absl::Status ReadRequests() {
    const auto file = ReadWorkload();
    if (!file.ok()) return file.status();
    const auto samples = SamplesOf(file->workload, file->trace, plan_.model().max_positions(),
                                   flags_.workload.empty() ? flags_.plan : flags_.workload);
    if (!samples.ok()) return samples.status();
    facts_.rate =
        flags_.requests_per_second > 0 ? flags_.requests_per_second : samples->requests_per_second;
    if (facts_.rate <= 0) facts_.rate = kDefaultLoad * plan_.prediction().requests_per_second();
    if (facts_.rate <= 0) {
      return absl::InvalidArgumentError(
          "--rate: neither the workload nor the plan says how many requests come per second");
    }
    const double seconds = 60 * flags_.minutes;
    if (file->trace.empty()) {
      const double count = std::ceil(facts_.rate * seconds);
      if (count > kMaxRequests) {
        return absl::InvalidArgumentError(
            absl::StrFormat("--minutes %g: these are %.0f requests, more than %.0f: lower it, or "
                            "--rate",
                            flags_.minutes, count, kMaxRequests));
      }
      requests_ = RequestsFromProcess({.requests_per_second = facts_.rate,
                                       .variation = samples->arrival_variation,
                                       .requests = static_cast<int64_t>(count),
                                       .seed = flags_.seed},
                                      samples->classes);
    } else {
      const double span = file->trace.back().arrival_seconds;
      const double own =
          span > 0 ? static_cast<double>(file->trace.size() - 1) / span : facts_.rate;
      requests_ = RequestsFromTrace(file->trace, facts_.rate / own, plan_.model().max_positions());
    }
    std::erase_if(requests_, [&](const auto& r) { return r.arrival_seconds > seconds; });
    if (requests_.empty()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--minutes %g: no request comes in that time: raise it, or --rate", flags_.minutes));
    }
    facts_.requests = static_cast<int64_t>(requests_.size());
    return absl::OkStatus();
  }

  absl::Status ReadKill() {
    if (flags_.kill.empty()) return absl::OkStatus();
    const size_t at = flags_.kill.rfind('@');
    kill_.machine = flags_.kill.substr(0, at);
    kill_.at_seconds = requests_.back().arrival_seconds / 3;
    if (at != std::string::npos) {
      const char* const begin = flags_.kill.c_str() + at + 1;
      const char* const end = flags_.kill.c_str() + flags_.kill.size();
      const auto read = std::from_chars(begin, end, kill_.at_seconds);
      if (read.ec != std::errc() || read.ptr != end || !(kill_.at_seconds >= 0)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--kill ", flags_.kill, ": give MACHINE, or MACHINE@SECONDS of the workload's time"));
      }
    }
    if (kill_.at_seconds > requests_.back().arrival_seconds) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "--kill %s: it would be killed at %g s, and the last request comes at %g s", flags_.kill,
          kill_.at_seconds, requests_.back().arrival_seconds));
    }
    for (const v1::Machine& machine : cluster_.machines()) {
      if (machine.name() == kill_.machine) return absl::OkStatus();
    }
    return absl::NotFoundError(
        absl::StrCat("--kill ", flags_.kill, ": the plan uses no machine ", kill_.machine));
  }

  absl::Status Promise() {
    scheduler::SimulationSetup setup;
    setup.replicas = replicas_.replicas;
    setup.transfers = replicas_.transfers;
    setup.requests = requests_;
    const auto dispatcher = scheduler::MakePlanDispatcher({{0, replicas_.shares}});
    const auto result = Simulate(setup, dispatcher.get());
    if (!result.ok()) return result.status();
    const scheduler::SimulationReport report = ReportOf(*result);
    facts_.promised = FiguresOf(report);
    for (const scheduler::RequestOutcome& outcome : result->outcomes)
      longest_seconds_ = std::max(longest_seconds_, outcome.finished_seconds);
    longest_seconds_ -= requests_.back().arrival_seconds;
    return absl::OkStatus();
  }

  absl::Status MakeFolder() {
    folder_ = flags_.log_dir;
    std::error_code error;
    if (folder_.empty()) {
      std::string pattern = (fs::temp_directory_path(error) / "tessera-rehearsal-XXXXXX").string();
      if (mkdtemp(pattern.data()) == nullptr)
        return absl::UnavailableError("cannot create a folder for the rehearsal; see --log-dir");
      folder_ = pattern;
    } else {
      fs::create_directories(folder_, error);
    }
    // Figures of a rehearsal before are not this one's.
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code left;
      if (entry->path().string().ends_with(".figures.json")) fs::remove(entry->path(), left);
    }
    return WriteRehearsalFolder(folder_, plan_, cluster_);
  }

  // The play has a thread of its own; this one looks after the processes.
  absl::Status PlayAll(RehearsalProcesses& processes) {
    facts_.machines = processes.machines();
    facts_.devices = processes.devices();
    facts_.forming = processes.times();
    if (!kill_.machine.empty()) {
      if (absl::Status s = processes.CheckMachine(kill_.machine); !s.ok()) return s;
    }
    PlayOptions options;
    options.http_port = processes.http_port();
    options.vocabulary = RehearsedTokens(plan_.model());
    options.speed = flags_.speed;
    options.patience_seconds =
        (kPatience * std::max(0.0, longest_seconds_) + kMorePatienceSeconds) / flags_.speed;
    std::atomic<bool> stop = false, done = false;
    options.stop = [&stop] { return stop.load(); };
    const CpuSeconds before = processes.Cpu();
    play_began_ = std::chrono::steady_clock::now();
    Play play;
    std::thread player([&] {
      play = PlayRequests(options, requests_);
      done = true;
    });
    const absl::Status watched = Watch(processes, done);
    stop = !watched.ok();
    player.join();
    if (!watched.ok()) return watched;
    const CpuSeconds after = processes.Cpu();
    facts_.cpu = {after.coordinator - before.coordinator,
                  std::max(0.0, after.workers - before.workers)};
    if (absl::Status s = AwaitRecovery(processes); !s.ok()) return s;
    Note(play);
    return absl::OkStatus();
  }

  absl::Status Watch(RehearsalProcesses& processes, const std::atomic<bool>& done) {
    for (; !done; std::this_thread::sleep_for(kLook)) {
      if (absl::Status s = processes.Check(); !s.ok()) return s;
      if (kill_.machine.empty() || flags_.speed * SecondsPlayed() < kill_.at_seconds) continue;
      if (absl::Status s = KillOrLook(processes); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  // Kills the machine; once that is done, looks whether all is ready again.
  absl::Status KillOrLook(RehearsalProcesses& processes) {
    if (!facts_.recovery.has_value()) {
      killed_seconds_ = SecondsPlayed();
      facts_.recovery = Recovery{.machine = kill_.machine,
                                 .at_seconds = flags_.speed * killed_seconds_,
                                 .ready_seconds = std::nullopt};
      return processes.KillAndRestart(kill_.machine);
    }
    if (!facts_.recovery->ready_seconds.has_value() && processes.AllReady())
      facts_.recovery->ready_seconds = SecondsPlayed() - killed_seconds_;
    return absl::OkStatus();
  }

  // The last answer may come before the machine that was killed does, or before it was killed.
  absl::Status AwaitRecovery(RehearsalProcesses& processes) {
    if (kill_.machine.empty()) return absl::OkStatus();
    const double until = SecondsPlayed() + kMorePatienceSeconds / std::min(1.0, flags_.speed);
    while (!facts_.recovery.has_value() ||
           (!facts_.recovery->ready_seconds.has_value() && SecondsPlayed() < until)) {
      if (absl::Status s = processes.Check(); !s.ok()) return s;
      if (absl::Status s = KillOrLook(processes); !s.ok()) return s;
      std::this_thread::sleep_for(kLook);
    }
    return absl::OkStatus();
  }

  double SecondsPlayed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - play_began_).count();
  }

  void Note(const Play& play) {
    facts_.play_seconds = play.seconds;
    facts_.most_streams = play.most_streams;
    facts_.rehearsed = FiguresOf(play, requests_, flags_.speed);
    for (const PlayedRequest& played : play.requests) {
      facts_.tokens += played.tokens;
      if (played.finished) continue;
      if (played.error.empty()) {
        ++facts_.unfinished;
      } else {
        ++facts_.failed;
        if (facts_.first_error.empty()) facts_.first_error = played.error;
      }
    }
    if (!facts_.recovery.has_value()) return;
    for (const PlayedRequest& played : play.requests) {
      if (played.longest_gap_end_seconds >= killed_seconds_)
        facts_.recovery->longest_pause_seconds =
            std::max(facts_.recovery->longest_pause_seconds, played.longest_gap_seconds);
    }
    facts_.recovery->failed_requests = facts_.failed;
  }

  const RehearseFlags& flags_;
  v1::DeploymentPlan plan_;
  v1::Cluster cluster_;
  v1::DeviceCatalogue catalogue_;
  scheduler::ClusterGraph graph_;
  scheduler::PlanReplicas replicas_;
  std::vector<scheduler::SimulatedRequest> requests_;
  Kill kill_;  // no machine: none is killed
  std::chrono::steady_clock::time_point play_began_;
  double killed_seconds_ = 0;   // of the play's clock
  double longest_seconds_ = 0;  // from the last arrival to the last answer, as simulated
  std::string folder_;
  RehearsalFacts facts_;
};

}  // namespace

void AddRehearse(const Command& app, RehearseFlags* flags) {
  const Command rehearse = app.AddSubcommand(
      "rehearse",
      "Run a plan on this machine with emulated devices, which compute nothing: promised beside "
      "rehearsed figures, what the control plane costs, how it recovers");
  rehearse.AddOption("plan", flags->plan, "plan.json, from tessera plan --out").Required();
  rehearse.AddOption("--cluster", flags->cluster,
                     "The cluster's description, YAML or JSON; default: as far as the plan tells");
  rehearse.AddOption("--workload", flags->workload,
                     "Workload or trace, as for tessera plan; default: the lengths that the plan "
                     "is for");
  rehearse
      .AddOption("--rate", flags->requests_per_second,
                 "Requests per second; default: the workload's, else 85 % of the plan's "
                 "prediction")
      .Check(Positive());
  rehearse.AddOption("--minutes", flags->minutes, "How long requests come, in the workload's time")
      .Check(Between(1e-6, 1e5))
      .ShowDefault();
  rehearse
      .AddOption("--speed", flags->speed,
                 "Seconds of the workload and of emulated steps that pass in one second: below 1 "
                 "where this machine cannot keep up")
      .Check(Between(1e-3, 1e3))
      .ShowDefault();
  rehearse.AddOption("--seed", flags->seed, "Of arrivals and lengths that are drawn").ShowDefault();
  rehearse.AddOption("--kill", flags->kill,
                     "MACHINE[@SECONDS]: kill all devices of a machine at that time of the "
                     "workload (default: after a third), and start it again");
  rehearse.AddOption("--bin-dir", flags->bin_dir,
                     "Folder of tessera-coordinator and tessera-worker; default: beside this "
                     "program");
  rehearse.AddOption("--log-dir", flags->log_dir,
                     "Folder for logs and what the processes read; default: a new temporary one");
  rehearse.AddSwitch("--json", flags->json, "Print JSON");
}

absl::StatusOr<std::string> Rehearse(const RehearseFlags& flags) { return Rehearsal(flags).Run(); }

}  // namespace tessera::deploy
