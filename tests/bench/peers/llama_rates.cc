// llama.cpp's side of the measurement cpu: answers the commands of ../model_rates.cc that it can,
// in the same form. Built by the script llama_cpp beside it.
//
//   llama_rates FILE.gguf THREADS CONTEXT_TOKENS
//
//   decode BATCH CONTEXT    one step behind contexts that were computed before: "SECONDS 0"
//   prefill TOKENS CHUNK    "SECONDS 0"
//   logits TOKENS FILE      the logits behind a prompt of that length, as f32, to FILE: "0 0"
#include <llama.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kMaxBatch = 16;

double Seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

int32_t TokenAt(int64_t i) { return static_cast<int32_t>(10 + (i * i) % 400); }

class Peer {
 public:
  Peer(const char* file, int threads, int context_tokens) {
    llama_backend_init();
    model_ = llama_model_load_from_file(file, llama_model_default_params());
    if (model_ == nullptr) std::exit(2);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(context_tokens);
    params.n_batch = 2048;
    params.n_ubatch = 512;
    params.n_seq_max = kMaxBatch;
    params.kv_unified = true;
    params.n_threads = threads;
    params.n_threads_batch = threads;
    context_ = llama_init_from_model(model_, params);
    if (context_ == nullptr) std::exit(2);
    batch_ = llama_batch_init(2048, 0, 1);
  }

  double Decode(int batch, int context) {
    if (batch != batch_computed_ || context != context_computed_) {
      Clear();
      for (int s = 0; s < batch; ++s) Feed(s, 0, context - 1, 512, false);
      batch_computed_ = batch;
      context_computed_ = context;
    }
    batch_.n_tokens = 0;
    for (int s = 0; s < batch; ++s) Add(s, context - 1, true);
    const double seconds = Run();
    for (int s = 0; s < batch; ++s) {
      llama_memory_seq_rm(llama_get_memory(context_), s, context - 1, -1);
    }
    return seconds;
  }

  double Prefill(int tokens, int chunk) {
    Clear();
    return Feed(0, 0, tokens, chunk, true);
  }

  void WriteLogits(const std::string& path) {
    const int64_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(llama_get_logits_ith(context_, -1)),
               vocabulary * static_cast<int64_t>(sizeof(float)));
  }

 private:
  void Clear() {
    llama_memory_clear(llama_get_memory(context_), false);
    batch_computed_ = 0;
  }

  void Add(int sequence, int position, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = TokenAt(position);
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = static_cast<int8_t>(logits);
  }

  double Feed(int sequence, int first, int end, int chunk, bool logits) {
    double seconds = 0;
    for (; first < end; first += chunk) {
      const int stop = first + chunk < end ? first + chunk : end;
      batch_.n_tokens = 0;
      for (int i = first; i < stop; ++i) Add(sequence, i, logits && i + 1 == end);
      seconds += Run();
    }
    return seconds;
  }

  double Run() {
    const double start = Seconds();
    if (llama_decode(context_, batch_) != 0) {
      std::cerr << "llama_rates: llama_decode failed\n";
      std::exit(2);
    }
    llama_synchronize(context_);
    return Seconds() - start;
  }

  llama_model* model_;
  llama_context* context_;
  llama_batch batch_;
  int batch_computed_ = 0, context_computed_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: llama_rates FILE.gguf THREADS CONTEXT_TOKENS\n";
    return 2;
  }
  Peer peer(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name, file;
    int a = 0, b = 0;
    words >> name >> a;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (name == "decode" && words >> b) {
      std::printf("%.6f 0\n", peer.Decode(a, b));
    } else if (name == "prefill" && words >> b) {
      std::printf("%.6f 0\n", peer.Prefill(a, b));
    } else if (name == "logits" && words >> file) {
      peer.Prefill(a, a);
      peer.WriteLogits(file);
      std::printf("0 0\n");
    } else {
      std::cerr << "llama_rates: what is \"" << line << "\"?\n";
      return 2;
    }
    std::fflush(stdout);
  }
  return 0;
}
