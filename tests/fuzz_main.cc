// Runs a fuzzer where libFuzzer is not at hand: first every file of the corpus, then mutations of
// them for some seconds, from a fixed seed. The flags are libFuzzer's own, so that a target takes
// the same ones in both builds:
//
//   x_fuzz_test [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [-runs=N] [FILE or FOLDER ...]
//
// No coverage guides it: it finds the shallow faults, in every run of the suite. `--config=fuzz`
// finds the deep ones. An input that crashes, hangs (25 s) or trips a sanitizer is written to a
// file, whose path is printed; passing that path runs it alone.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Sanitizers call back before they end the process; absent in an ordinary build.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace tessera::tests {
namespace {

namespace fs = std::filesystem;
using Input = std::vector<std::uint8_t>;

constexpr unsigned kHangSeconds = 25;

struct Options {
  double max_total_time_seconds = 0;  // 0: the corpus only
  std::uint64_t seed = 1;
  std::size_t max_len_bytes = 4096;
  std::uint64_t max_runs = 0;  // 0: as many as the time allows
  std::vector<fs::path> paths;
};

// The input under test and where to leave it; read by signal handlers, hence plain globals.
const Input* g_running = nullptr;
char g_crash_path[4096];

// The input in hexadecimal, for logs that outlive the file. Only async-signal-safe calls.
void PrintRunningInput() {
  constexpr std::size_t kMaxBytes = 1024;
  constexpr char kDigits[] = "0123456789abcdef";
  static char text[2 * kMaxBytes];
  const std::size_t size = std::min(g_running->size(), kMaxBytes);
  for (std::size_t i = 0; i < size; ++i) {
    text[2 * i] = kDigits[(*g_running)[i] >> 4];
    text[2 * i + 1] = kDigits[(*g_running)[i] & 15];
  }
  constexpr std::string_view kIntroduction =
      "\nfuzz: the input begins with these bytes (xxd -r -p): ";
  (void)!write(2, kIntroduction.data(), kIntroduction.size());
  (void)!write(2, text, 2 * size);
}

// Only async-signal-safe calls.
void SaveRunningInput() {
  if (g_running == nullptr) return;
  PrintRunningInput();
  const int file = open(g_crash_path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) return;
  const bool written =
      write(file, g_running->data(), g_running->size()) == static_cast<ssize_t>(g_running->size());
  close(file);
  constexpr std::string_view kSaved = "\nfuzz: the input is saved in ";
  constexpr std::string_view kPartial = "\nfuzz: part of the input is saved in ";
  const std::string_view text = written ? kSaved : kPartial;
  (void)!write(2, text.data(), text.size());
  (void)!write(2, g_crash_path, std::char_traits<char>::length(g_crash_path));
  (void)!write(2, "\n", 1);
  g_running = nullptr;
}

void OnFatalSignal(int number) {
  SaveRunningInput();
  signal(number, SIG_DFL);
  raise(number);
}

void SaveInputOnDeath() {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::snprintf(g_crash_path, sizeof g_crash_path, "%s/crash-%d",
                folder != nullptr ? folder : fs::temp_directory_path().c_str(),
                static_cast<int>(getpid()));
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SaveRunningInput);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) {
    signal(number, OnFatalSignal);
  }
}

void RunOne(const Input& input) {
  g_running = &input;
  alarm(kHangSeconds);
  // A copy of exactly this size, so that a read past the end is one past an allocation.
  const Input copy(input.begin(), input.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  alarm(0);
  g_running = nullptr;
}

class Mutator {
 public:
  Mutator(std::uint64_t seed, std::size_t max_len_bytes)
      : random_(seed), max_len_bytes_(max_len_bytes) {}

  // One to eight small changes to a random member of `corpus` (not empty).
  Input Next(const std::vector<Input>& corpus) {
    Input input = corpus[Below(corpus.size())];
    for (std::size_t changes = 1 + Below(8); changes > 0; --changes) Change(input, corpus);
    if (input.size() > max_len_bytes_) input.resize(max_len_bytes_);
    return input;
  }

 private:
  std::size_t Below(std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(random_() % limit);
  }

  void Change(Input& input, const std::vector<Input>& corpus) {
    // Bytes that parsers treat specially, numbers at their limits included.
    static constexpr std::uint8_t kTelling[] = {0,   '"',  '\\', '{',  '}',  '[',  ']',
                                                ',', ':',  '-',  '9',  'e',  '\n', ' ',
                                                '%', 0x7f, 0x80, 0xc0, 0xed, 0xf4, 0xff};
    const std::size_t at = Below(input.size() + 1);
    const std::size_t length = Below(std::min<std::size_t>(input.size() - at, 64) + 1);
    const auto from = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (Below(7)) {
      case 0:  // flip a bit
        if (at < input.size()) input[at] ^= static_cast<std::uint8_t>(1U << Below(8));
        break;
      case 1:  // overwrite with a telling byte
        if (at < input.size()) input[at] = kTelling[Below(std::size(kTelling))];
        break;
      case 2:  // insert one
        input.insert(from, kTelling[Below(std::size(kTelling))]);
        break;
      case 3:  // remove a piece
        input.erase(from, from + static_cast<std::ptrdiff_t>(length));
        break;
      case 4:  // repeat a piece: nesting, long numbers
        Repeat(input, at, length);
        break;
      case 5:  // take over the rest of another input
        Splice(input, at, corpus[Below(corpus.size())]);
        break;
      default:  // cut the end
        input.resize(at);
    }
  }

  void Repeat(Input& input, std::size_t at, std::size_t length) {
    const Input piece(input.begin() + static_cast<std::ptrdiff_t>(at),
                      input.begin() + static_cast<std::ptrdiff_t>(at + length));
    Input many;
    for (std::size_t times = 1 + Below(64); times > 0; --times) {
      many.insert(many.end(), piece.begin(), piece.end());
    }
    input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), many.begin(), many.end());
  }

  void Splice(Input& input, std::size_t at, const Input& other) {
    const std::size_t begin = Below(other.size() + 1);
    input.resize(at);
    input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(begin), other.end());
  }

  std::mt19937_64 random_;
  std::size_t max_len_bytes_;
};

// Whether `argument` is -name=NUMBER; stores the number. Exits on a bad one.
template <typename Number>
bool ParseFlag(std::string_view argument, std::string_view name, Number& value) {
  if (!argument.starts_with(name)) return false;
  const std::string_view text = argument.substr(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return true;
  std::fprintf(stderr, "fuzz: %.*s needs a number, not \"%.*s\"\n", static_cast<int>(name.size()),
               name.data(), static_cast<int>(text.size()), text.data());
  std::exit(2);
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (ParseFlag(argument, "-max_total_time=", options.max_total_time_seconds) ||
        ParseFlag(argument, "-seed=", options.seed) ||
        ParseFlag(argument, "-max_len=", options.max_len_bytes) ||
        ParseFlag(argument, "-runs=", options.max_runs)) {
      continue;
    }
    if (argument.starts_with("-")) {
      std::fprintf(stderr, "fuzz: unknown flag %s\n", argv[i]);
      std::exit(2);
    }
    options.paths.emplace_back(argument);
  }
  return options;
}

// Sorted by path, so that a seed means the same run everywhere.
std::vector<Input> ReadCorpus(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::exists(path)) {
      std::fprintf(stderr, "fuzz: the corpus %s does not exist\n", path.c_str());
      std::exit(2);
    }
    if (!fs::is_directory(path)) files.push_back(path);
    for (const auto& entry : fs::is_directory(path) ? fs::recursive_directory_iterator(path)
                                                    : fs::recursive_directory_iterator()) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Input> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

int Main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  SaveInputOnDeath();
  std::vector<Input> corpus = ReadCorpus(options.paths);
  for (const Input& input : corpus) RunOne(input);
  const std::size_t corpus_size = corpus.size();
  if (corpus.empty()) corpus.emplace_back();

  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Mutator mutator(options.seed, options.max_len_bytes);
  std::uint64_t runs = 0;
  while (elapsed_seconds() < options.max_total_time_seconds &&
         (options.max_runs == 0 || runs < options.max_runs)) {
    RunOne(mutator.Next(corpus));
    ++runs;
  }
  std::printf("fuzz: %zu corpus files and %llu mutations in %.1f s, seed %llu\n", corpus_size,
              static_cast<unsigned long long>(runs), elapsed_seconds(),
              static_cast<unsigned long long>(options.seed));
  return 0;
}

}  // namespace
}  // namespace tessera::tests

int main(int argc, char** argv) { return tessera::tests::Main(argc, argv); }
