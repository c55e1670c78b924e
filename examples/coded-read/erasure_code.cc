#include "examples/coded-read/erasure_code.h"

#include <utility>
#include <vector>

#include <isa-l/erasure_code.h>

namespace coded {
namespace {

constexpr size_t kTableBytes = 32;  // ISA-L needs them for each coefficient

using Matrix = std::array<unsigned char, kFragments * kData>;

// A row for each fragment. The first rows are the identity, so fragments of data are the data itself.
Matrix CodeMatrix() {
  Matrix matrix;
  gf_gen_cauchy1_matrix(matrix.data(), kFragments, kData);
  return matrix;
}

unsigned char* Bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

// Makes the `outputs` from kData inputs, by rows of coefficients.
void Multiply(unsigned char* rows, std::array<unsigned char*, kData> inputs, std::vector<unsigned char*> outputs) {
  std::vector<unsigned char> tables(kData * outputs.size() * kTableBytes);
  const auto count = static_cast<int>(outputs.size());
  ec_init_tables(kData, count, rows, tables.data());
  ec_encode_data(kFragmentBytes, kData, count, tables.data(), inputs.data(), outputs.data());
}

}  // namespace

StripeFragments Encode(std::string_view stripe) {
  std::string data(stripe);
  data.resize(kStripeBytes);
  StripeFragments fragments;
  std::array<unsigned char*, kData> inputs;
  for (size_t i = 0; i < kFragments; ++i) {
    fragments[i] = i < kData ? data.substr(i * kFragmentBytes, kFragmentBytes) : std::string(kFragmentBytes, '\0');
    if (i < kData) inputs[i] = Bytes(fragments[i]);
  }
  Matrix matrix = CodeMatrix();
  Multiply(&matrix[kData * kData], inputs, {Bytes(fragments[kData]), Bytes(fragments[kData + 1])});
  return fragments;
}

std::optional<std::string> Decode(StripeFragments fragments) {
  const Matrix matrix = CodeMatrix();
  std::array<unsigned char, kData * kData> used;  // the rows of the fragments that are used
  std::array<unsigned char*, kData> inputs;
  size_t count = 0;
  for (size_t i = 0; i < kFragments && count < kData; ++i) {
    if (fragments[i].empty()) continue;
    if (fragments[i].size() != kFragmentBytes) return std::nullopt;
    for (size_t j = 0; j < kData; ++j) used[count * kData + j] = matrix[i * kData + j];
    inputs[count++] = Bytes(fragments[i]);
  }
  std::array<unsigned char, kData * kData> inverse;
  if (count < kData || gf_invert_matrix(used.data(), inverse.data(), kData) != 0) return std::nullopt;
  std::vector<unsigned char> rows;  // of the fragments that are missing
  std::vector<std::pair<size_t, std::string>> restored;
  for (size_t i = 0; i < kData; ++i) {
    if (!fragments[i].empty()) continue;
    rows.insert(rows.end(), &inverse[i * kData], &inverse[i * kData] + kData);
    restored.emplace_back(i, std::string(kFragmentBytes, '\0'));
  }
  std::vector<unsigned char*> outputs;
  for (auto& [i, bytes] : restored) outputs.push_back(Bytes(bytes));
  if (!outputs.empty()) Multiply(rows.data(), inputs, outputs);
  for (auto& [i, bytes] : restored) fragments[i] = std::move(bytes);
  std::string stripe;
  for (size_t i = 0; i < kData; ++i) stripe += fragments[i];
  return stripe;
}

}  // namespace coded
