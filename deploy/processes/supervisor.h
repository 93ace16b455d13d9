// The programs that `tessera up` keeps running: what ends is started again, after a pause that
// grows while it ends again and again, so that the others serve on undisturbed. What happens is
// printed.
//
// Thread rule: one thread. Nothing waits but Stop.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/processes/child_process.h"
#include "deploy/processes/restart_policy.h"

namespace tessera::deploy {

class Supervisor {
 public:
  // `now_seconds` is a monotonic clock.
  Supervisor(std::string log_folder, std::function<double()> now_seconds)
      : log_folder_(std::move(log_folder)), now_seconds_(std::move(now_seconds)) {}

  // Starts `arguments[0]`, whose output goes to NAME.log. Programs are numbered from 0 on.
  absl::Status Launch(std::string name, std::vector<std::string> arguments);
  // For later starts.
  void SetArguments(size_t program, std::vector<std::string> arguments);
  // Takes note of what ended, and starts what is due.
  void Revive();

  size_t size() const { return children_.size(); }
  const std::string& name(size_t program) const { return children_[program].name; }
  bool running(size_t program) const { return children_[program].restart_seconds == 0; }
  // Seconds since its start.
  double lived_seconds(size_t program) const {
    return now_seconds_() - children_[program].started_seconds;
  }
  // OK while it runs; else why it ended, with the end of its log.
  absl::Status Check(size_t program);
  // OK until Revive saw it end; then why it ended last, with the end of its log.
  const absl::Status& last_end(size_t program) const { return children_[program].last_end; }
  // Its last ends came soon after their starts (RestartPolicy).
  bool failing(size_t program) const { return children_[program].policy.failing(); }
  // When Revive saw the last end of any; negative infinity: none.
  double last_end_seconds() const;

  void Signal(size_t program, int signal);
  // Whether it ended within the time.
  bool WaitFor(size_t program, double seconds);
  // Kills what is left.
  void Clear() { children_.clear(); }

 private:
  struct Child {
    std::string name;
    std::vector<std::string> arguments;
    std::optional<ChildProcess> process;
    double started_seconds = 0;
    RestartPolicy policy;
    double restart_seconds = 0;  // when it is started again; 0: it runs
    absl::Status last_end;
    double last_end_seconds = 0;
  };

  absl::Status Run(Child& child);
  static absl::Status Check(Child& child);
  void OnEnd(Child& child, const absl::Status& reason);

  const std::string log_folder_;
  const std::function<double()> now_seconds_;
  std::vector<Child> children_;
};

}  // namespace tessera::deploy
