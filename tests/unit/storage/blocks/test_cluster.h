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

// A file "data" that is striped over workers in this process, and a reader of it over a link.
class TestCluster {
 public:
  struct Options {
    int workers = 4;
    int listed_workers = 0;  // that the reader knows; 0: all of them
    size_t file_bytes = 100000;
    uint32_t sru_bytes = 4096;
    uint32_t replicas = 1;
    ScheduleOptions schedule;
    Link::BudgetOptions budget;
    std::shared_ptr<const BudgetLessor> share;
    bool inline_callbacks = false;
    BlockReader::Options reader;  // its workers are filled in
  };
  explicit TestCluster(Options options);
  ~TestCluster();

  const std::string& source() const { return source_; }
  std::string root() const { return folder_.path() / "data"; }
  TestWorker& worker(size_t index) { return *workers_[index]; }
  size_t size() const { return workers_.size(); }
  TestWorker& manifest_worker();  // the one that is asked first for the manifest of "data"
  Link& link() { return *link_; }
  const std::shared_ptr<Link>& shared_link() { return link_; }
  BlockReader& reader() { return *reader_; }
  const BlockReader::Options& reader_options() const { return options_.reader; }
  void DestroyReader() { reader_.reset(); }
  void MakeReader();  // a new one, with no manifest in memory

  uint64_t block_bytes() const { return uint64_t{options_.sru_bytes} * static_cast<uint64_t>(options_.workers); }
  std::string SourceBlock(uint64_t block) const { return source_.substr(block * block_bytes(), block_bytes()); }

  absl::StatusOr<Block> Read(uint64_t block, const ReadOptions& options = {}) {
    return reader_->Read("data", block, options);
  }
  // Spoils the SRUs of all workers.
  void SpoilSrus(const TestWorker::SruFault& fault);
  int Requests() const;

  // Waits until nothing waits and nothing is in flight on the link. False: it did not come to that.
  bool AwaitIdle();

  // "sluice_blocks_total" {outcome="complete"}: the value of a counter, or of a histogram's count, now.
  double Metric(const std::string& name, const std::string& label_value = "") const;
  // The same of a gauge; none where it is not shown.
  std::optional<double> Gauge(const std::string& name, const std::string& label_value = "") const;

 private:
  Options options_;
  TemporaryFolder folder_;
  const std::string source_;
  std::vector<std::unique_ptr<TestWorker>> workers_;
  std::shared_ptr<Link> link_;
  std::unique_ptr<BlockReader> reader_;
};

// All parts of a read, the last of them its error if it had one.
struct ReadResult {
  absl::Status status;  // OK: it ended with its summary
  ReadHeader header;
  std::string data;  // zeros where bytes are missing
  std::vector<ReadChunk> chunks;
  std::vector<MissingBytes> missing;
  ReadSummary summary;
};
// Fails the test where parts do not follow each other.
ReadResult Drain(ReadStream& stream);

}  // namespace sluice::testing
