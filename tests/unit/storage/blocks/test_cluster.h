#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/block_reader.h"
#include "sluice/link.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/eventually.h"
#include "tests/has_code.h"
#include "tests/unit/storage/blocks/test_worker.h"
#include "tests/unit/storage/stripe/striped_folder.h"

namespace sluice::testing {

// A file "data" striped over workers in this process, and a reader of it over a link.
class TestCluster {
 public:
  struct Options {
    int workers = 4;
    int listed_workers = 0;  // number of workers in the reader's list; 0: all of them
    size_t file_bytes = 100000;
    uint32_t sru_bytes = 4096;
    uint32_t replicas = 1;
    ScheduleOptions schedule;
    Link::BudgetOptions budget;
    std::shared_ptr<const BudgetLessor> share;
    bool inline_callbacks = false;
    BlockReader::Options reader;  // the constructor sets its workers
  };
  explicit TestCluster(Options options);
  ~TestCluster();

  const std::string& source() const { return source_; }
  std::string root() const { return folder_.path() / "data"; }
  TestWorker& worker(size_t index) { return *workers_[index]; }
  size_t size() const { return workers_.size(); }
  TestWorker& manifest_worker();  // the first worker that the reader requests the manifest of "data" from
  Link& link() { return *link_; }
  const std::shared_ptr<Link>& shared_link() { return link_; }
  BlockReader& reader() { return *reader_; }
  const BlockReader::Options& reader_options() const { return options_.reader; }
  void DestroyReader() { reader_.reset(); }
  void MakeReader();  // a new reader without a cached manifest

  uint64_t block_bytes() const { return uint64_t{options_.sru_bytes} * static_cast<uint64_t>(options_.workers); }
  std::string SourceBlock(uint64_t block) const { return source_.substr(block * block_bytes(), block_bytes()); }

  absl::StatusOr<Block> Read(uint64_t block, const ReadOptions& options = {}) {
    return reader_->Read("data", block, options);
  }
  // Spoils the SRUs of all workers.
  void SpoilSrus(const TestWorker::SruFault& fault);
  int Requests() const;

  // Waits until no call waits and nothing is in flight on the link. Returns false if it times out.
  bool AwaitIdle();

  // Returns the current value of a counter, or the count of a histogram: "sluice_blocks_total" {outcome="complete"}.
  double Metric(const std::string& name, const std::string& label_value = "") const;
  // Returns the value of a gauge, or of a counter that is read from the schedule like a gauge; empty if it is missing.
  std::optional<double> Gauge(const std::string& name, const std::string& label_value = "") const;

 private:
  Options options_;
  TemporaryFolder folder_;
  const std::string source_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<BlockReader> reader_;
};

// All parts of a read. The error of the read, if any, comes last.
struct ReadResult {
  absl::Status status;  // OK if the read ended with its summary
  ReadHeader header;
  std::string data;  // zeros where bytes are missing
  std::vector<ReadChunk> chunks;
  std::vector<MissingBytes> missing;
  ReadSummary summary;
};
// Reads all parts. Fails the test if they are not consecutive.
ReadResult Drain(ReadStream& stream);

}  // namespace sluice::testing
