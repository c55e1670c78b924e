#include "tools/sluice_load/load.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tools/block_client.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

absl::StatusOr<std::string> ReadSource(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  return bytes;
}

// Returns the number of bytes of `data` that differ from the source at `offset`, including bytes beyond its end.
uint64_t CountBad(std::string_view source, uint64_t offset, std::string_view data) {
  const std::string_view expected = offset < source.size() ? source.substr(offset, data.size()) : std::string_view();
  if (expected == data) return 0;
  uint64_t bad = data.size() - expected.size();
  for (size_t i = 0; i < expected.size(); ++i) bad += expected[i] != data[i] ? 1 : 0;
  return bad;
}

// One client. Other threads read its results only after it has ended.
class Client {
 public:
  Client(const LoadOptions& options, std::string_view source)
      : options_(options), source_(source), client_(options.aggregator, options.security) {}

  void Read(int blocks, absl::Duration duration) {
    result_ = {};
    const auto begun = Clock::now();
    for (int i = 0; i < blocks; ++i) {
      const auto started = Clock::now();
      if (absl::FromChrono(started - begun) >= duration || stopped()) return;
      const absl::Status status = ReadBlock();
      if (status.ok()) {
        result_.block_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - started).count());
      } else {
        ++result_.errors;
        result_.error_sample = status.ToString();
      }
    }
  }

  const LoadResult& result() const { return result_; }

 private:
  bool stopped() const { return !options_.stop_file.empty() && std::filesystem::exists(options_.stop_file); }

  absl::Status ReadBlock() {
    v1::ReadRequest request;
    request.set_file(options_.file);
    request.set_block(next_block_);
    const BlockClient::Sink sink{.on_header =
                                     [this](const v1::ReadHeader& header) {
                                       AdvanceBlock(header);
                                       return absl::OkStatus();
                                     },
                                 .on_data =
                                     [this](uint64_t offset, std::string_view data) {
                                       result_.bytes += data.size();
                                       if (!options_.compare_with.empty()) {
                                         result_.bad_bytes += CountBad(source_, offset, data);
                                       }
                                       return absl::OkStatus();
                                     },
                                 .on_missing = [](const v1::MissingRange&) { return absl::OkStatus(); }};
    return client_.Read(request, options_.timeout, sink).status();
  }

  void AdvanceBlock(const v1::ReadHeader& header) {
    const uint64_t blocks = (header.file_bytes() + header.block_bytes() - 1) / header.block_bytes();
    next_block_ = (next_block_ + 1) % blocks;
  }

  const LoadOptions& options_;
  const std::string_view source_;
  BlockClient client_;
  uint64_t next_block_ = 0;  // the first response contains the number of blocks
  LoadResult result_;
};

void RunAll(std::vector<std::unique_ptr<Client>>& clients, int blocks, absl::Duration duration) {
  std::vector<std::jthread> threads;
  for (auto& client : clients) threads.emplace_back([&client, blocks, duration] { client->Read(blocks, duration); });
}

void AwaitStart(const std::string& start_file) {
  if (start_file.empty()) return;
  std::cerr << "warm" << std::endl;
  while (!std::filesystem::exists(start_file)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options) {
  const absl::StatusOr<std::string> source = ReadSource(options.compare_with);
  if (!source.ok()) return source.status();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < options.clients; ++i) clients.push_back(std::make_unique<Client>(options, *source));
  RunAll(clients, options.warmup_blocks, absl::InfiniteDuration());
  AwaitStart(options.start_file);
  const auto started = Clock::now();
  RunAll(clients, options.blocks, options.duration);
  LoadResult total;
  total.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  for (const auto& client : clients) {
    const LoadResult& result = client->result();
    total.bytes += result.bytes;
    total.bad_bytes += result.bad_bytes;
    total.errors += result.errors;
    if (!result.error_sample.empty()) total.error_sample = result.error_sample;
    total.block_ms.insert(total.block_ms.end(), result.block_ms.begin(), result.block_ms.end());
  }
  return total;
}

}  // namespace sluice
