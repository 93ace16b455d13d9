// How quantization_config is read, by the values of quant_method; each is defined in the file of
// its format. Failures go to the reader, and name the key and what to use instead.
#pragma once

#include "proto/json_reader.h"
#include "proto/model.pb.h"

namespace tessera {

void ReadAwq(JsonReader& reader, v1::Quantization* quantization);
void ReadGptq(JsonReader& reader, v1::Quantization* quantization);
void ReadAutoRound(JsonReader& reader, v1::Quantization* quantization);
void ReadFp8(JsonReader& reader, v1::Quantization* quantization);
void ReadFbgemmFp8(JsonReader& reader, v1::Quantization* quantization);
void ReadModelOpt(JsonReader& reader, v1::Quantization* quantization);
void ReadCompressedTensors(JsonReader& reader, v1::Quantization* quantization);
void ReadBitsAndBytes(JsonReader& reader, v1::Quantization* quantization);
void ReadMxfp4(JsonReader& reader, v1::Quantization* quantization);

// For a checkpoint of FP8, until its tensors say which matrices are: all of the layers' are planned
// as codes, where blocks allow that.
void PlanFp8(v1::Quantization* quantization);

// Inputs that share a scale of NVFP4, and of MXFP4.
inline constexpr int32_t kNvfp4Inputs = 16, kMxfp4Inputs = 32;
// For a checkpoint with floats of four bits, of which that many inputs share a scale: they are
// planned as decoded, as GPUs hold them.
void PlanFourBitFloats(int32_t scaled_inputs, v1::Quantization* quantization);

}  // namespace tessera
