#include "durable_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "clock.h"

namespace pybench {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error(path + ": " + why);
}

// A private view of a file: what is changed in it stays here.
class View {
  public:
    explicit View(const std::string& path) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) refuse(path, std::strerror(errno));
        struct stat info{};
        fstat(file, &info);
        size = static_cast<size_t>(info.st_size);
        if (size >= kHeadBytes) memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        ::close(file);
        if (memory == MAP_FAILED) refuse(path, "no power recording of pybench's");
    }
    ~View() { munmap(memory, size); }
    View(const View&) = delete;
    View& operator=(const View&) = delete;

    template <typename Value>
    Value* at(size_t offset) const {
        return reinterpret_cast<Value*>(static_cast<char*>(memory) + offset);
    }

    size_t size = 0;
    void* memory = MAP_FAILED;
};

std::string damage(size_t at) { return "damaged at byte " + std::to_string(at); }

void check(const FileHead& head, size_t size, const std::string& path) {
    if (std::memcmp(head.magic, kFileMagic, sizeof kFileMagic) != 0) refuse(path, "no power recording of pybench's");
    if (head.version != kFileVersion) {
        refuse(path, "version " + std::to_string(head.version) + ", this pybench reads " +
                         std::to_string(kFileVersion) + "; read it with the pybench that wrote it");
    }
    if ((size - kHeadBytes) / sizeof(GpuBlock) < head.num_gpus) refuse(path, "cut short");
}

int64_t newest_ns(const Recording& recording) {
    int64_t newest = 0;
    for (const GpuRecording& gpu : recording.gpus) {
        if (!gpu.counter.empty()) newest = std::max(newest, gpu.counter.back().after_ns);
        if (!gpu.polled.empty()) newest = std::max(newest, gpu.polled.back().t_ns);
    }
    return newest;
}

}  // namespace

// What the collector had not yet moved behind the blocks is still in their rings; what it was moving may be in both.
Recording read_durable_file(const std::string& path) {
    const View view(path);
    FileHead& head = *view.at<FileHead>(0);
    check(head, view.size, path);
    Recording recording(head.num_gpus);
    std::vector<uint64_t> next(head.num_gpus);  // sequence
    const size_t first = kHeadBytes + head.num_gpus * sizeof(GpuBlock);
    for (size_t at = first; at + sizeof(Record) <= view.size; at += sizeof(Record)) {
        const Record& record = *view.at<Record>(at);
        if (record.gpu >= next.size() || record.plane > Plane::offset) refuse(path, damage(at));
        recording.add(record);
        next[record.gpu] = record.sequence + 1;
    }
    for (size_t i = 0; i < next.size(); ++i) {
        const Ring& ring = view.at<GpuBlock>(kHeadBytes)[i].ring;
        if (ring.head - ring.tail > kRingRecords) refuse(path, damage(kHeadBytes + i * sizeof(GpuBlock)));
        ring.each([&](const Record& record) {
            if (record.sequence >= next[i]) recording.add(record);
        });
    }
    recording.conclude(head, view.at<GpuBlock>(kHeadBytes), std::max(head.end_ns.load(), newest_ns(recording)),
                       kSecond);
    return recording;
}

}  // namespace pybench
