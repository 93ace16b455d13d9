#include "deploy/processes/supervisor.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::deploy {

namespace {

std::string LastLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  std::string text;
  for (size_t i = lines.size() > 5 ? lines.size() - 5 : 0; i < lines.size(); ++i) {
    absl::StrAppend(&text, "\n    ", lines[i]);
  }
  struct statvfs disk = {};
  if (statvfs(path.c_str(), &disk) == 0 && disk.f_bavail == 0)
    absl::StrAppend(&text, "\n    (", std::strerror(ENOSPC), ": more was not written)");
  return text;
}

}  // namespace

absl::Status Supervisor::Launch(std::string name, std::vector<std::string> arguments) {
  children_.emplace_back();
  children_.back().name = std::move(name);
  children_.back().arguments = std::move(arguments);
  absl::Status started = Run(children_.back());
  if (!started.ok()) children_.pop_back();
  return started;
}

void Supervisor::SetArguments(size_t program, std::vector<std::string> arguments) {
  children_[program].arguments = std::move(arguments);
}

absl::Status Supervisor::Run(Child& child) {
  absl::StatusOr<ChildProcess> process = ChildProcess::Start(
      child.name, child.arguments, absl::StrCat(log_folder_, "/", child.name, ".log"));
  if (!process.ok()) return process.status();
  child.process.emplace(*std::move(process));
  child.started_seconds = now_seconds_();
  child.restart_seconds = 0;
  return absl::OkStatus();
}

absl::Status Supervisor::Check(size_t program) { return Check(children_[program]); }

absl::Status Supervisor::Check(Child& child) {
  const std::optional<std::string> ended = child.process->Ended();
  if (!ended.has_value()) return absl::OkStatus();
  const std::string& log = child.process->log_file();
  return absl::AbortedError(
      absl::StrCat(child.name, " ", *ended, "; the end of its log ", log, ":", LastLines(log)));
}

void Supervisor::OnEnd(Child& child, const absl::Status& reason) {
  child.last_end_seconds = now_seconds_();
  const double lived = std::max(0.0, child.last_end_seconds - child.started_seconds);
  const double pause = child.policy.OnEnd(lived);
  child.last_end = reason;
  child.restart_seconds = child.last_end_seconds + pause;
  std::cout << std::string(reason.message()) << std::endl;
  if (!child.policy.failing()) return;
  std::cout << absl::StrFormat(
                   "%s ended %d times in a row soon after its start; the next try is in %.0f s",
                   child.name, child.policy.ends_at_once(), pause)
            << std::endl;
}

void Supervisor::Revive() {
  for (Child& child : children_) {
    if (child.restart_seconds > 0) {
      if (now_seconds_() < child.restart_seconds) continue;
      if (absl::Status s = Run(child); !s.ok()) {
        child.started_seconds = now_seconds_();
        OnEnd(child, s);
      } else {
        std::cout << child.name << " is started again" << std::endl;
      }
      continue;
    }
    if (absl::Status ended = Check(child); !ended.ok()) OnEnd(child, ended);
  }
}

double Supervisor::last_end_seconds() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const Child& child : children_) {
    if (!child.last_end.ok()) last = std::max(last, child.last_end_seconds);
  }
  return last;
}

void Supervisor::Signal(size_t program, int signal) { children_[program].process->Signal(signal); }

bool Supervisor::WaitFor(size_t program, double seconds) {
  return children_[program].process->WaitFor(seconds);
}

}  // namespace tessera::deploy
