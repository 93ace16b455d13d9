// llama.cpp's side of the measurements cpu and gguf: answers the commands of ../model_rates.cc that
// it can, in the same form, and those of text. Built by the script llama_cpp beside it.
//
//   llama_rates FILE.gguf THREADS CONTEXT_TOKENS
//   llama_rates --expand FILE.gguf OUT.gguf    writes the same model with all weights as float32
//
//   decode BATCH CONTEXT    one step behind contexts that were computed before: "SECONDS 0"
//   prefill TOKENS CHUNK    "SECONDS 0"
//   logits TOKENS FILE      the logits behind a prompt of that length, as f32, to FILE: "0 0"
//   greedy COUNT ID...      the tokens of the best logits behind a prompt of these, even behind the
//                           end of the text: "SECONDS ID MARGIN ID MARGIN ...", seconds of the
//                           steps of one token, margins to the second best logit in millionths
//   ids FILE                the text of FILE, special tokens parsed, and those added that the model
//                           asks for: "0 ID ..."
//   split FILE              the same without special tokens
#include <ggml.h>
#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
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

  // Tokens with their margins, as the command greedy prints them, to `chosen`.
  double Greedy(std::vector<int32_t> ids, int count, std::vector<int64_t>* chosen) {
    Clear();
    double seconds = 0;
    for (int position = 0; count > 0; --count) {
      batch_.n_tokens = 0;
      const int end = static_cast<int>(ids.size());
      const bool is_prompt = position == 0;
      for (; position < end; ++position) AddToken(0, ids[position], position, position + 1 == end);
      const double step = Run();
      if (!is_prompt) seconds += step;
      const auto [best, margin] = Best();
      chosen->push_back(best);
      chosen->push_back(static_cast<int64_t>(1e6 * margin));
      ids.push_back(best);
    }
    return seconds;
  }

  std::vector<int32_t> Tokenize(const std::string& text, bool special) const {
    std::vector<int32_t> ids(text.size() + 16);
    ids.resize(std::max(0, llama_tokenize(llama_model_get_vocab(model_), text.data(),
                                          static_cast<int32_t>(text.size()), ids.data(),
                                          static_cast<int32_t>(ids.size()), special, special)));
    return ids;
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

  // The best token of the last row, and its logit's margin to the second.
  std::pair<int32_t, float> Best() {
    const int32_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model_));
    const float* logits = llama_get_logits_ith(context_, -1);
    const auto best = std::max_element(logits, logits + vocabulary);
    const float second = std::max(best == logits ? -INFINITY : *std::max_element(logits, best),
                                  best + 1 == logits + vocabulary
                                      ? -INFINITY
                                      : *std::max_element(best + 1, logits + vocabulary));
    return {static_cast<int32_t>(best - logits), *best - second};
  }

  void Add(int sequence, int position, bool logits) {
    AddToken(sequence, TokenAt(position), position, logits);
  }

  void AddToken(int sequence, int32_t token, int position, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = token;
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

int Expand(const char* from, const char* to) {
  ggml_context* tensors = nullptr;
  gguf_context* source = gguf_init_from_file(from, {.no_alloc = false, .ctx = &tensors});
  if (source == nullptr) return 2;
  gguf_context* out = gguf_init_empty();
  gguf_set_kv(out, source);
  const int64_t count = gguf_get_n_tensors(source);
  size_t bytes = static_cast<size_t>(count + 1) * ggml_tensor_overhead();
  const auto tensor_at = [&](int64_t i) {
    return ggml_get_tensor(tensors, gguf_get_tensor_name(source, i));
  };
  for (int64_t i = 0; i < count; ++i) {
    bytes += static_cast<size_t>(ggml_nelements(tensor_at(i))) * sizeof(float) + 64;
  }
  ggml_context* expanded = ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = false});
  for (int64_t i = 0; i < count; ++i) {
    const ggml_tensor* tensor = tensor_at(i);
    ggml_tensor* floats = ggml_new_tensor(expanded, GGML_TYPE_F32, GGML_MAX_DIMS, tensor->ne);
    ggml_set_name(floats, tensor->name);
    if (tensor->type == GGML_TYPE_F32) {
      std::copy_n(static_cast<const char*>(tensor->data), ggml_nbytes(tensor),
                  static_cast<char*>(floats->data));
    } else {
      ggml_get_type_traits(tensor->type)
          ->to_float(tensor->data, static_cast<float*>(floats->data), ggml_nelements(tensor));
    }
    gguf_add_tensor(out, floats);
  }
  return gguf_write_to_file(out, to, false) ? 0 : 2;
}

template <typename T>
void PrintLine(double seconds, const std::vector<T>& numbers) {
  std::cout << seconds;
  for (const T number : numbers) std::cout << ' ' << number;
  std::cout << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: llama_rates FILE.gguf THREADS CONTEXT_TOKENS\n"
                 "       llama_rates --expand FILE.gguf OUT.gguf\n";
    return 2;
  }
  if (std::string(argv[1]) == "--expand") return Expand(argv[2], argv[3]);
  Peer peer(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string name, file;
    int a = 0, b = 0;
    words >> name;
    if (name == "ids" || name == "split") {
      words >> file;
      std::ifstream source(file, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(source), {}};
      PrintLine(0, peer.Tokenize(text, name == "ids"));
      continue;
    }
    words >> a;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (name == "decode" && words >> b) {
      std::printf("%.6f 0\n", peer.Decode(a, b));
    } else if (name == "prefill" && words >> b) {
      std::printf("%.6f 0\n", peer.Prefill(a, b));
    } else if (name == "greedy") {
      std::vector<int64_t> chosen;
      const std::vector<int32_t> ids{std::istream_iterator<int32_t>(words), {}};
      PrintLine(peer.Greedy(ids, a, &chosen), chosen);
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
