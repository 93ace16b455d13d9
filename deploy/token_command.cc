#include "deploy/token_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>

#include "proto/file_text.h"
#include "proto/plain_text.h"
#include "proto/run_folder.h"
#include "third_party/absl/str_cat.h"
#include "third_party/cli11/number_check.h"
#include "tls/cluster_member.h"
#include "tls/cluster_tls.h"
#include "tls/issue.h"
#include "tls/pem.h"

namespace tessera::deploy {
namespace {

constexpr int64_t kDaySeconds = 86400;

// A new file of mode 0600; false in `made` where it is there already.
absl::Status WriteNew(const std::string& path, const std::string& text, bool* made) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  *made = file >= 0;
  if (file < 0 && errno == EEXIST) return absl::OkStatus();
  bool written =
      file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (file >= 0) written = close(file) == 0 && written;
  if (written) return absl::OkStatus();
  if (file >= 0) unlink(path.c_str());
  return absl::UnavailableError(StrCat(path, ": cannot be written: ", std::strerror(error)));
}

absl::Status CheckFile(const std::string& flag, const std::string& name) {
  constexpr size_t kMaxBytes = 64;  // of the name in a certificate
  const bool plain = !name.empty() && name.size() <= kMaxBytes && name.front() != '.' &&
                     name != "coordinator" && name != "authority" && !HasControls(name) &&
                     name.find('/') == std::string::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(flag, " '", WithoutControls(name),
             "': a name of a file is expected, of up to 64 bytes, other than coordinator and "
             "authority; workers machine/0 and machine/1 share the file of their machine"));
}

class Maker {
 public:
  explicit Maker(const TokenFlags& flags) : flags_(flags) {}

  absl::Status MakeAll() {
    std::error_code error;
    std::filesystem::create_directories(flags_.folder, error);
    if (error) {
      return absl::UnavailableError(
          StrCat("--out ", flags_.folder, ": cannot be made: ", error.message()));
    }
    if (absl::Status s = Make("token", [] { return DrawSecret() + "\n"; }); !s.ok()) return s;
    if (absl::Status s = FindAuthority(); !s.ok()) return s;
    if (absl::Status s = MakeMember("coordinator", {kCoordinatorServerName, kWorkerServerName});
        !s.ok()) {
      return s;
    }
    for (const std::string& machine : flags_.machines) {
      if (absl::Status s = MakeMember(machine, {kWorkerServerName}); !s.ok()) return s;
    }
    for (const std::string& pool : flags_.pools) {
      if (absl::Status s = MakeMember(pool, {kWorkerServerName, kAnyWorkerServerName}); !s.ok())
        return s;
    }
    return absl::OkStatus();
  }
  std::string text() const { return text_; }

 private:
  std::string Path(const std::string& name) const { return StrCat(flags_.folder, "/", name); }

  absl::Status Make(const std::string& name,
                    const std::function<absl::StatusOr<std::string>()>& content) {
    const std::string path = Path(name);
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      text_ += StrCat(path, " stays as it is\n");
      return absl::OkStatus();
    }
    const absl::StatusOr<std::string> made = content();
    if (!made.ok()) return made.status();
    bool is_new = false;
    if (absl::Status s = WriteNew(path, *made, &is_new); !s.ok()) return s;
    text_ += StrCat(path, is_new ? " is new\n" : " stays as it is\n");
    return absl::OkStatus();
  }

  absl::Status FindAuthority() {
    const auto issue = [this]() -> absl::StatusOr<std::string> {
      const auto made =
          MakeAuthority({.common_name = "Tessera cluster " + DrawSecret().substr(0, 8),
                         .ends_in_seconds = flags_.days * kDaySeconds});
      if (!made.ok()) return made.status();
      return made->key + made->certificate;
    };
    if (absl::Status s = Make("authority.pem", issue); !s.ok()) return s;
    const absl::StatusOr<std::string> text = ReadFileText(Path("authority.pem"), kMaxPemBytes);
    if (!text.ok()) return text.status();
    authority_ = {*text, *text};
    const size_t certificate = text->find("-----BEGIN CERTIFICATE-----");
    if (certificate == std::string::npos || !PemKey(*text).ok()) {
      return absl::InvalidArgumentError(
          StrCat(Path("authority.pem"),
                 ": it does not hold a key and the authority's certificate: take another --out"));
    }
    authority_certificate_ = text->substr(certificate);
    return absl::OkStatus();
  }

  absl::Status MakeMember(const std::string& name, const std::vector<std::string>& names) {
    return Make(name + ".pem", [&]() -> absl::StatusOr<std::string> {
      const auto made = SignCertificate(
          authority_,
          {.common_name = name, .names = names, .ends_in_seconds = flags_.days * kDaySeconds});
      if (!made.ok()) return made.status();
      return made->key + made->certificate + authority_certificate_;
    });
  }

  const TokenFlags& flags_;
  Issued authority_;
  std::string authority_certificate_;
  std::string text_;
};

}  // namespace

void AddToken(const Command& app, TokenFlags& flags) {
  const Command token = app.AddSubcommand(
      "token",
      "Make the secret and the certificates by which a cluster's processes know each other");
  token.RequireSubcommands(1, 1);
  const Command create =
      token.AddSubcommand("create", "Make them in a folder, or those that are missing there");
  create.AddOption("--out", flags.folder, "Folder for the files").Required();
  create.AddOption("--machine", flags.machines,
                   "Name of a machine with workers, each of which gets one file; may be given more "
                   "than once");
  create.AddOption("--pool", flags.pools,
                   "Name of a file that machines share, whose workers may have any name: for pods, "
                   "and machines that come and go; may be given more than once");
  create.AddOption("--days", flags.days, "Days that new certificates hold")
      .Check(Between(1, 36500))
      .ShowDefault();
}

absl::StatusOr<std::string> CreateToken(const TokenFlags& flags) {
  for (const std::string& machine : flags.machines) {
    if (absl::Status s = CheckFile("--machine", machine); !s.ok()) return s;
  }
  for (const std::string& pool : flags.pools) {
    if (absl::Status s = CheckFile("--pool", pool); !s.ok()) return s;
  }
  Maker maker(flags);
  if (absl::Status s = maker.MakeAll(); !s.ok()) return s;
  std::string text = maker.text();
  const std::string token =
      StrCat(" --cluster-token-file ", flags.folder, "/token --cluster-tls ", flags.folder, "/");
  text += StrCat("\nnext, here:\n  tessera-coordinator MODEL --host ADDRESS", token,
                 "coordinator.pem\n");
  for (const std::string& machine : flags.machines) {
    text += StrCat("on ", machine, ", with its copies of token and ", machine,
                   ".pem:\n  tessera-worker --coordinator ADDRESS:8001 --listen ITS_ADDRESS:9000 "
                   "--cluster-token-file token --cluster-tls ",
                   machine, ".pem --name ", machine, "/0\n");
  }
  for (const std::string& pool : flags.pools) {
    text +=
        StrCat("on each machine that shares ", pool,
               ".pem:\n  tessera-worker --coordinator "
               "ADDRESS:8001 --listen ITS_ADDRESS:9000 --cluster-token-file token --cluster-tls ",
               pool, ".pem\n");
  }
  text += StrCat("keep ", flags.folder,
                 "/authority.pem to yourself: whoever has it can make machines of this cluster\n");
  return text;
}

}  // namespace tessera::deploy
