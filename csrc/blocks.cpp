#include "blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace pybench {

namespace {

[[noreturn]] void fail(int code, const std::string& what) {
    throw std::system_error(code, std::generic_category(), what);
}

// A new file whose first bytes are reserved on the disk, so that writing to the mapping can't fail later.
int create_file(const std::string& path, size_t size) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) fail(errno, path);
    if (const int code = posix_fallocate(file, 0, static_cast<off_t>(size)); code != 0) {
        ::close(file);
        ::unlink(path.c_str());
        fail(code, path);
    }
    return file;
}

}  // namespace

Blocks::Blocks(const std::string& path, size_t num_gpus)
    : path_(path), num_gpus_(num_gpus), size_(kHeadBytes + num_gpus * sizeof(GpuBlock)) {
    if (!path.empty()) file_ = create_file(path, size_);
    const int kind = file_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, kind, file_, 0);
    if (memory == MAP_FAILED) {
        const int code = errno;
        if (file_ >= 0) ::close(file_);
        fail(code, path);
    }
    memory_ = static_cast<char*>(memory);
    std::memcpy(head().magic, kFileMagic, sizeof kFileMagic);
    head().version = kFileVersion;
    head().num_gpus = num_gpus;
}

Blocks::~Blocks() {
    munmap(memory_, size_);
    if (file_ >= 0) ::close(file_);
}

void Blocks::discard() {
    if (file_ >= 0) ::unlink(path_.c_str());
}

void Blocks::append(const std::vector<Record>& records) {
    if (file_ < 0 || records.empty()) return;
    const char* from = reinterpret_cast<const char*>(records.data());
    const size_t size = records.size() * sizeof(Record);
    const off_t end = lseek(file_, 0, SEEK_END);
    size_t written = 0;
    while (written < size) {
        const ssize_t n = pwrite(file_, from + written, size - written, end + static_cast<off_t>(written));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        written += static_cast<size_t>(n);
    }
    if (written == size) return;
    // Cut back to whole records: what follows must begin on their grid.
    const size_t whole = written / sizeof(Record);
    head().num_unwritten += records.size() - whole;
    if (ftruncate(file_, end + static_cast<off_t>(whole * sizeof(Record))) != 0) head().num_unwritten += whole;
}

}  // namespace pybench
