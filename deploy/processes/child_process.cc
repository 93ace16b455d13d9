#include "deploy/processes/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::deploy {

absl::StatusOr<ChildProcess> ChildProcess::Start(std::string name,
                                                 const std::vector<std::string>& arguments,
                                                 std::string log_file) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  if (access(argv[0], X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot start ", name, ": ", argv[0], ": ", strerror(errno)));
  }
  int log = -1;
  if (!log_file.empty()) {
    log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0)
      return absl::UnavailableError(absl::StrCat("log ", log_file, ": ", strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    return absl::UnavailableError(absl::StrCat("cannot start ", name, ": ", strerror(errno)));
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);  // it ended before we asked for the signal
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (log >= 0) {
      dup2(log, STDOUT_FILENO);
      dup2(log, STDERR_FILENO);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (log >= 0) close(log);
  return ChildProcess(std::move(name), std::move(log_file), pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      log_file_(std::move(other.log_file_)),
      pid_(std::exchange(other.pid_, -1)),
      ended_(std::move(other.ended_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || Ended().has_value()) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0 && !ended_.has_value()) kill(pid_, signal);
}

std::optional<std::string> ChildProcess::Ended() {
  if (ended_.has_value() || pid_ < 0) return ended_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  ended_ = WIFSIGNALED(status) ? absl::StrCat("was ended by signal ", WTERMSIG(status), " (",
                                              strsignal(WTERMSIG(status)), ")")
                               : absl::StrCat("exited with code ", WEXITSTATUS(status));
  return ended_;
}

bool ChildProcess::WaitFor(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!Ended().has_value()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

absl::StatusOr<std::string> FindProgram(const std::string& folder, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places;
  if (!folder.empty()) {
    places = {fs::path(folder) / name};
  } else {
    places = {self / name, self.parent_path() / "coordinator" / name,
              self.parent_path() / "worker" / name};
  }
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place, error)) return place.string();
  }
  return absl::NotFoundError(absl::StrCat(name, " is not beside this program (", places[0].string(),
                                          "): say where with --bin-dir"));
}

}  // namespace tessera::deploy
