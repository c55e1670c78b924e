#pragma once

#include <memory>

#include "sluice/read_stream.h"

#include "lib/storage/blocks/file_read.h"
#include "lib/storage/blocks/reader_gate.h"

namespace sluice {

// A consumer's handle of a FileRead, which lives on the link's thread. It may outlive the reader. Thread-safe.
class FileStream final : public ReadStream {
 public:
  FileStream(std::shared_ptr<ReaderGate> gate, std::shared_ptr<FileRead> read);
  ~FileStream() override;

  void Next(Callback callback) override;
  absl::StatusOr<ReadPart> Next() override;
  void Cancel() override;

 private:
  void Post(Callback callback, FileRead::CallOn call_on);

  const std::shared_ptr<ReaderGate> gate_;
  std::shared_ptr<FileRead> read_;
};

}  // namespace sluice
