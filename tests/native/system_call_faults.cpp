// Lets one of a process's system calls fail, or every one from there on. To be loaded with LD_PRELOAD; see
// tests/faults.py.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

// What a call does, and with it the errors that it may have.
enum Kind : uint32_t { reads = 1, writes = 2, opens = 4 };

constexpr size_t kMost = 4096;

bool armed = false, goes_on = false, failing = false;
char target[kMost];
int64_t occurrence = 0, seen = 0;
int error = 0;
uint32_t kinds = 0;
int log_file = -1;

// The path of an open file, without a system call that could fail.
size_t path_of(int file, char* to, size_t size) {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
    const long length = file == AT_FDCWD ? 0 : syscall(SYS_readlinkat, AT_FDCWD, link, to, size);
    return length < 0 ? 0 : static_cast<size_t>(length);
}

// A call and what it is about, with N for each number, so that it is called the same in the next run.
size_t describe(char* to, const char* name, int file, const char* path) {
    char text[kMost];
    size_t length = static_cast<size_t>(snprintf(text, 64, "%s ", name));
    if (file != -1 && (path == nullptr || path[0] != '/')) length += path_of(file, text + length, kMost / 2);
    if (path != nullptr)
        length += static_cast<size_t>(snprintf(text + length, kMost / 2 - 64, path[0] == '/' ? "%s" : "/%s", path));
    size_t out = 0;
    for (size_t i = 0; i < length; ++i) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        if (digit && out > 0 && to[out - 1] == 'N') continue;
        to[out++] = digit ? 'N' : text[i];
    }
    to[out] = '\0';
    return out;
}

// Whether the present call fails. Standard output and error have tests of their own.
bool fails(const char* name, uint32_t kind, int file = -1, const char* path = nullptr) {
    if (!armed || (file >= 0 && file <= 2)) return false;
    const int before = errno;
    if (failing && goes_on && (kind & kinds) != 0) {
        errno = error;
        return true;
    }
    char call[kMost];
    size_t length = describe(call, name, file, path);
    if (log_file >= 0) {
        call[length++] = ' ';
        call[length++] = static_cast<char>('0' + kind);
        call[length++] = '\n';
        syscall(SYS_write, log_file, call, length);
    } else if (strcmp(call, target) == 0 && seen++ == occurrence) {
        failing = true;
        errno = error;
        return true;
    }
    errno = before;
    return false;
}

template <typename Function>
Function* real(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

uint32_t kind_of(int flags) { return opens | ((flags & (O_CREAT | O_TRUNC)) != 0 ? writes : reads); }

}  // namespace

extern "C" {

// From now on the call ``described`` as the log has it fails the ``place``-th time with ``code``; with ``on`` every
// call of ``which`` kinds fails from there on.
void faults_arm(const char* described, int64_t place, int code, uint32_t which, int on) {
    snprintf(target, sizeof(target), "%s", described);
    occurrence = place;
    seen = 0;
    error = code;
    kinds = which;
    goes_on = on != 0;
    failing = false;
    armed = true;
}
// Write every call and its kinds to an open file.
void faults_log(int file) {
    log_file = file;
    armed = true;
}
// Whether a call has failed.
int faults_disarm() {
    armed = false;
    return failing ? 1 : 0;
}

#define WRAP(Result, name, kind, file, path, failed, parameters, arguments) \
    Result name parameters {                                                \
        if (fails(#name, kind, file, path)) return failed;                  \
        static auto* const next = real<Result parameters>(#name);           \
        return next arguments;                                              \
    }
#define WRAP_OPEN(name)                                                    \
    int name(const char* path, int flags, ...) {                           \
        va_list rest;                                                      \
        va_start(rest, flags);                                             \
        const mode_t mode = va_arg(rest, mode_t);                          \
        va_end(rest);                                                      \
        if (fails(#name, kind_of(flags), AT_FDCWD, path)) return -1;       \
        static auto* const next = real<int(const char*, int, ...)>(#name); \
        return next(path, flags, mode);                                    \
    }
#define WRAP_OPENAT(name)                                                       \
    int name(int folder, const char* path, int flags, ...) {                    \
        va_list rest;                                                           \
        va_start(rest, flags);                                                  \
        const mode_t mode = va_arg(rest, mode_t);                               \
        va_end(rest);                                                           \
        if (fails(#name, kind_of(flags), folder, path)) return -1;              \
        static auto* const next = real<int(int, const char*, int, ...)>(#name); \
        return next(folder, path, flags, mode);                                 \
    }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP(ssize_t, read, reads, file, nullptr, -1, (int file, void* to, size_t size), (file, to, size))
WRAP(ssize_t, pread64, reads, file, nullptr, -1, (int file, void* to, size_t size, off64_t from),
     (file, to, size, from))
WRAP(ssize_t, write, writes, file, nullptr, -1, (int file, const void* from, size_t size), (file, from, size))
WRAP(ssize_t, pwrite64, writes, file, nullptr, -1, (int file, const void* from, size_t size, off64_t to),
     (file, from, size, to))
WRAP(off64_t, lseek64, reads, file, nullptr, -1, (int file, off64_t to, int whence), (file, to, whence))
WRAP(int, fsync, writes, file, nullptr, -1, (int file), (file))
WRAP(int, ftruncate64, writes, file, nullptr, -1, (int file, off64_t size), (file, size))
WRAP(int, posix_fallocate64, writes, file, nullptr, error, (int file, off64_t from, off64_t size), (file, from, size))
WRAP(int, fstat64, reads, file, nullptr, -1, (int file, struct stat64* into), (file, into))
WRAP(int, stat64, reads, AT_FDCWD, path, -1, (const char* path, struct stat64* into), (path, into))
WRAP(int, lstat64, reads, AT_FDCWD, path, -1, (const char* path, struct stat64* into), (path, into))
WRAP(int, fstatat64, reads, folder, path, -1, (int folder, const char* path, struct stat64* into, int flags),
     (folder, path, into, flags))
WRAP(int, statvfs64, reads, AT_FDCWD, path, -1, (const char* path, struct statvfs64* into), (path, into))
WRAP(int, rename, writes, AT_FDCWD, from, -1, (const char* from, const char* to), (from, to))
WRAP(int, renameat, writes, a, from, -1, (int a, const char* from, int b, const char* to), (a, from, b, to))
WRAP(int, mkdir, writes, AT_FDCWD, path, -1, (const char* path, mode_t mode), (path, mode))
WRAP(int, mkdirat, writes, folder, path, -1, (int folder, const char* path, mode_t mode), (folder, path, mode))
WRAP(int, unlink, writes, AT_FDCWD, path, -1, (const char* path), (path))
WRAP(int, unlinkat, writes, folder, path, -1, (int folder, const char* path, int flags), (folder, path, flags))
WRAP(int, rmdir, writes, AT_FDCWD, path, -1, (const char* path), (path))
WRAP(int, chmod, writes, AT_FDCWD, path, -1, (const char* path, mode_t mode), (path, mode))
WRAP(int, fchmod, writes, file, nullptr, -1, (int file, mode_t mode), (file, mode))
WRAP(int, flock, reads, file, nullptr, -1, (int file, int operation), (file, operation))
WRAP(ssize_t, readlink, reads, AT_FDCWD, path, -1, (const char* path, char* to, size_t size), (path, to, size))
WRAP(ssize_t, sendfile64, writes, out, nullptr, -1, (int out, int in, off64_t* from, size_t size),
     (out, in, from, size))
WRAP(DIR*, opendir, opens | reads, AT_FDCWD, path, nullptr, (const char* path), (path))
WRAP(DIR*, fdopendir, opens | reads, file, nullptr, nullptr, (int file), (file))
WRAP(struct dirent64*, readdir64, reads, dirfd(folder), nullptr, nullptr, (DIR * folder), (folder))
WRAP(int, pipe2, opens, -1, nullptr, -1, (int files[2], int flags), (files, flags))
WRAP(int, dup, opens, -1, nullptr, -1, (int file), (file))

}  // extern "C"
