// Checkpoints with random weights, written when a test runs: models whose sizes divide badly, for
// layouts whose parts have remainders. They have no expected results; one worker gives those.
//
// All have 5 layers, a hidden width of 48, 6 heads of 8 on 3 kv heads (the hybrid 8 on 4),
// feed-forward layers of odd width, and a vocabulary of 97. Weights depend on the kind alone.
// Thread rule: thread-safe.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace tessera::worker {

enum class MadeModel {
  kDense,         // Llama, with an output head of its own
  kTiedWithBias,  // Qwen2: the embedding is the head, and q, k and v have biases
  kExperts,       // Qwen3 MoE: 5 experts, 2 for each token, layer 1 dense; q and k are normed
  kHybrid,        // Qwen3.5: layers 0, 2 and 3 are gated delta nets of 4 key groups
};

inline constexpr int kMadeLayers = 5;
inline constexpr int kMadeExperts = 5;
inline constexpr int kMadeVocabulary = 97;

std::vector<MadeModel> MadeModels();
std::string_view Name(MadeModel kind);

// config.json and model.safetensors (float32). Fails the test where they cannot be written.
void WriteMadeCheckpoint(const std::filesystem::path& folder, MadeModel kind);

}  // namespace tessera::worker
