// Processes that `tessera up` starts and must not leave behind.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::deploy {

class ChildProcess {
 public:
  // Starts `arguments[0]`; its output goes to `log_file` (appended), or where ours goes if that is
  // empty. It has a process group of its own, so a terminal's Ctrl-C reaches only us, and gets a
  // signal to end when we do.
  static absl::StatusOr<ChildProcess> Start(std::string name,
                                            const std::vector<std::string>& arguments,
                                            std::string log_file);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // kills what still runs

  const std::string& name() const { return name_; }
  const std::string& log_file() const { return log_file_; }
  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // In words ("exited with code 1"), once it has ended.
  std::optional<std::string> Ended();
  // Waits at most so long for its end.
  bool WaitFor(double seconds);

 private:
  ChildProcess(std::string name, std::string log_file, pid_t pid)
      : name_(std::move(name)), log_file_(std::move(log_file)), pid_(pid) {}

  std::string name_;
  std::string log_file_;
  pid_t pid_ = -1;
  std::optional<std::string> ended_;
};

// Full path of a program that stands beside this executable, or, in a Bazel output tree, in its
// package's folder.
absl::StatusOr<std::string> FindProgram(const std::string& folder, const std::string& name);

}  // namespace tessera::deploy
