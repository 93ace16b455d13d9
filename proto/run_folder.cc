#include "proto/run_folder.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"
#include "third_party/linux/host_name.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr char kMembersFile[] = "members", kCoordinatorFile[] = "coordinator";
// Bytes of kCoordinatorFile: who holds the first is writing the secrets, or has; who holds the
// second has.
constexpr int kClaimed = 0, kReady = 1;
constexpr int kMember = 0;  // of kMembersFile
constexpr size_t kMaxHostBytes = 40;
// The name of a Unix socket has 107 bytes in all; workers need so many behind the folder's.
constexpr size_t kMaxFolderBytes = 107 - 29;

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

std::string Home() {
  if (std::string home = Variable("HOME"); !home.empty()) return home;
  const passwd* const user = getpwuid(geteuid());
  return user == nullptr || user->pw_dir == nullptr ? "" : user->pw_dir;
}

// Best first.
std::vector<fs::path> Bases() {
  std::vector<fs::path> bases;
  if (const std::string state = Variable("XDG_STATE_HOME"); !state.empty()) {
    bases.push_back(fs::path(state) / "tessera");
  } else if (const std::string home = Home(); home.starts_with("/")) {
    bases.push_back(fs::path(home) / ".local/state/tessera");
  }
  if (const std::string runtime = Variable("XDG_RUNTIME_DIR"); !runtime.empty())
    bases.push_back(fs::path(runtime) / "tessera");
  bases.push_back(absl::StrCat("/tmp/tessera-", geteuid()));
  return bases;
}

std::string FolderName(std::string_view name) {
  std::string folder = HostName().substr(0, kMaxHostBytes);
  absl::StrAppend(&folder, "-", std::string(name));
  for (char& c : folder) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && c != '-' && c != '.') c = '_';
  }
  return folder;
}

absl::Status Failure(const fs::path& path, std::string_view what) {
  return absl::UnavailableError(absl::StrCat(path.string(), ": ", std::string(what)));
}

// A folder of this user that nobody else may open; made where there is none.
absl::Status MakePrivate(const fs::path& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return Failure(folder, std::strerror(errno));
  const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return Failure(folder, std::strerror(errno));
  struct stat found = {};
  const bool ours = fstat(opened, &found) == 0 && found.st_uid == geteuid();
  const bool closed = ours && ((found.st_mode & 0077) == 0 || fchmod(opened, 0700) == 0);
  close(opened);
  if (closed) return absl::OkStatus();
  return Failure(folder, ours ? "cannot be closed to others" : "belongs to another user");
}

// Readers see all of it or nothing.
absl::Status WriteSecret(const fs::path& file, const std::string& text) {
  const std::string temporary = file.string() + ".new";
  unlink(temporary.c_str());
  const int opened = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (opened < 0) return Failure(temporary, std::strerror(errno));
  const std::string line = text + "\n";
  bool written = write(opened, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  int error = errno;
  if (close(opened) != 0 && written) written = false, error = errno;
  if (written && rename(temporary.c_str(), file.c_str()) == 0) return absl::OkStatus();
  if (written) error = errno;
  unlink(temporary.c_str());
  return Failure(file, absl::StrCat("cannot be written: ", std::strerror(error)));
}

std::string ReadSecret(const fs::path& file) {
  const absl::StatusOr<std::string> read = ReadTokenFile(file.string());
  return read.ok() ? *read : "";
}

// Sockets at which nobody listens any more.
void RemoveDeadSockets(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = entry.path().string();
    if (!entry.is_socket(error) || path.size() >= sizeof address.sun_path) continue;
    std::memcpy(address.sun_path, path.data(), path.size());
    // To a listener for streams this is the wrong type, which is no connection that it hears of.
    const int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool dead = probe >= 0 &&
                      connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
                      errno == ECONNREFUSED;
    if (probe >= 0) close(probe);
    if (dead) unlink(path.c_str());
  }
}

}  // namespace

// A lock on bytes of a file that its owner holds while it lives, whichever way it ends.
class RunFolder::Lock {
 public:
  // With `make`, makes the file. ALREADY_EXISTS: others hold it.
  static absl::StatusOr<std::unique_ptr<Lock>> Take(const fs::path& file, short type, int byte,
                                                    bool make = true) {
    const int opened =
        open(file.c_str(), O_RDWR | (make ? O_CREAT : 0) | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (opened < 0) return Failure(file, std::strerror(errno));
    std::unique_ptr<Lock> lock(new Lock(opened));
    if (lock->Change(type, byte)) return lock;
    if (errno == EAGAIN || errno == EACCES)
      return absl::AlreadyExistsError(absl::StrCat(file.string(), " is held by another program"));
    return Failure(file, absl::StrCat("cannot be locked: ", std::strerror(errno)));
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  bool Change(short type, int byte) {
    struct flock lock = Of(type, byte);
    return fcntl(file_, F_OFD_SETLK, &lock) == 0;
  }
  // Its file is still the one at the path.
  bool IsAt(const fs::path& path) const {
    struct stat own = {}, there = {};
    return fstat(file_, &own) == 0 && lstat(path.c_str(), &there) == 0 &&
           own.st_ino == there.st_ino && own.st_dev == there.st_dev;
  }
  // Whether anybody holds that lock.
  static bool IsHeld(const fs::path& file, int byte) {
    const int opened = open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (opened < 0) return false;
    struct flock lock = Of(F_WRLCK, byte);
    const bool held = fcntl(opened, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(opened);
    return held;
  }

 private:
  explicit Lock(int file) : file_(file) {}
  static struct flock Of(short type, int byte) {
    struct flock lock = {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = byte;
    lock.l_len = 1;
    return lock;
  }
  const int file_;
};

std::string DrawSecret() {
  std::array<unsigned char, 32> bytes;
  // So few bytes come whole; without them there is no safe way on.
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) std::abort();
  std::string secret;
  for (const unsigned char byte : bytes) absl::StrAppend(&secret, absl::Hex(byte, absl::kZeroPad2));
  return secret;
}

RunFolder::RunFolder(fs::path path, std::unique_ptr<Lock> member)
    : path_(std::move(path)), member_(std::move(member)) {}

RunFolder::~RunFolder() {
  coordinator_.reset();
  if (!member_->Change(F_WRLCK, kMember)) {
    // Others are left, or leave at this moment and see us: the last to let go looks once more.
    member_.reset();
    auto again = Lock::Take(path_ / kMembersFile, F_WRLCK, kMember, /*make=*/false);
    if (!again.ok() || !(*again)->IsAt(path_ / kMembersFile)) return;
    member_ = *std::move(again);
  }
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Enter(const fs::path& path) {
  if (path.string().size() > kMaxFolderBytes) {
    return Failure(path, absl::StrCat("has ", path.string().size(), " bytes; more than ",
                                      kMaxFolderBytes, " leave no room for names of sockets"));
  }
  std::error_code ignored;
  fs::create_directories(path.parent_path().parent_path(), ignored);
  // Whoever leaves last may remove the folder in between.
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    for (const fs::path& folder : {path.parent_path(), path}) {
      if (absl::Status s = MakePrivate(folder); !s.ok()) return s;
    }
    auto member = Lock::Take(path / kMembersFile, F_RDLCK, kMember);
    if (member.ok() && (*member)->IsAt(path / kMembersFile)) {
      RemoveDeadSockets(path);
      return std::unique_ptr<RunFolder>(new RunFolder(path, *std::move(member)));
    }
    if (absl::IsUnavailable(member.status()) && fs::exists(path, ignored)) return member.status();
    usleep(10'000);
  }
  return Failure(path, "is in use by a program that ends");
}

absl::Status RunFolder::Keep(RunSecrets secrets, bool keep) {
  const std::pair<const char*, std::string*> all[] = {{kClusterTokenFile, &secrets.cluster_token},
                                                      {kAdminKeyFile, &secrets.admin_key}};
  for (const auto& [name, secret] : all) {
    const fs::path file = path_ / name;
    if (secret->empty()) {  // what an earlier run kept would mislead
      unlink(file.c_str());
      continue;
    }
    const std::string old = keep ? ReadSecret(file) : "";
    if (!old.empty()) *secret = old;
    if (absl::Status s = WriteSecret(file, *secret); !s.ok()) return s;
  }
  secrets_ = std::move(secrets);
  return absl::OkStatus();
}

// Folders of this machine whose members have all ended.
void RunFolder::RemoveDeadSiblings() const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_.parent_path(), ignored)) {
    const fs::path members = entry.path() / kMembersFile;
    if (entry.path() == path_ || !entry.path().filename().string().starts_with(FolderName("")) ||
        !fs::exists(members, ignored)) {
      continue;
    }
    const auto dead = Lock::Take(members, F_WRLCK, kMember);
    if (dead.ok() && (*dead)->IsAt(members)) fs::remove_all(entry.path(), ignored);
  }
}

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Claim(int port, RunSecrets secrets,
                                                            bool keep) {
  std::string reasons;
  for (const fs::path& base : Bases()) {
    const fs::path path = base / FolderName(std::to_string(port));
    auto folder = Enter(path);
    absl::Status status = folder.status();
    if (status.ok()) {
      auto coordinator = Lock::Take(path / kCoordinatorFile, F_WRLCK, kClaimed);
      if (absl::IsAlreadyExists(coordinator.status())) {
        return absl::AlreadyExistsError(absl::StrCat(
            "another coordinator of this user holds gRPC port ", port, " (", path.string(),
            "): give this one another --grpc-port, or both --cluster-token-file and "
            "--admin-key-file"));
      }
      status = coordinator.status();
      if (status.ok()) {
        (*folder)->coordinator_ = *std::move(coordinator);
        status = (*folder)->Keep(secrets, keep);
        if (status.ok() && !(*folder)->coordinator_->Change(F_WRLCK, kReady))
          status = Failure(path, "cannot be locked");
      }
      if (status.ok()) {
        (*folder)->RemoveDeadSiblings();
        return *std::move(folder);
      }
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", std::string(status.message()));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no folder for this run's cluster token and admin key (", reasons,
      "): set XDG_STATE_HOME to a folder of this user, or give --cluster-token-file and "
      "--admin-key-file, or --open-loopback, which lets all users of this machine in"));
}

std::unique_ptr<RunFolder> RunFolder::Join(std::string_view name) {
  const std::vector<fs::path> bases = Bases();
  // Where the coordinator is, if it runs.
  auto base = std::find_if(bases.begin(), bases.end(), [&](const fs::path& b) {
    return Lock::IsHeld(b / FolderName(name) / kCoordinatorFile, kReady);
  });
  for (base = base == bases.end() ? bases.begin() : base; base != bases.end(); ++base) {
    if (auto folder = Enter(*base / FolderName(name)); folder.ok()) return *std::move(folder);
  }
  return nullptr;
}

std::optional<RunSecrets> RunFolder::Find(int port) {
  for (const fs::path& base : Bases()) {
    const fs::path path = base / FolderName(std::to_string(port));
    if (!Lock::IsHeld(path / kCoordinatorFile, kReady)) continue;
    return RunSecrets{.cluster_token = ReadSecret(path / kClusterTokenFile),
                      .admin_key = ReadSecret(path / kAdminKeyFile)};
  }
  return std::nullopt;
}

std::optional<int> LoopbackPort(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (!CheckHostPort(address).ok() || !IsLoopback(address.substr(0, colon))) return std::nullopt;
  return std::atoi(std::string(address.substr(colon + 1)).c_str());
}

}  // namespace tessera
