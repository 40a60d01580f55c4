/* Arm semihosting: the host's console and files, as QEMU, FVPs and debuggers offer them. */
#ifndef TOSAIC_SEMIHOSTING_H
#define TOSAIC_SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t host_file;

/* "rb", "wb" and "r+b"; only the last fails where there is no such file yet and writes where there is. */
enum host_mode { HOST_READ = 1, HOST_WRITE = 5, HOST_WRITE_EXISTING = 3 };

/* A handle, or -1 where the host cannot open `path`. */
host_file host_open(const char *path, enum host_mode mode);
void host_close(host_file file);
/* The bytes that were read: fewer than `size` only at the end of the file. */
size_t host_read(host_file file, void *data, size_t size);
/* The bytes that were written. */
size_t host_write(host_file file, const void *data, size_t size);

void host_print(const char *text);
void host_print_hex(uint32_t value);
_Noreturn void host_exit(int code);

#endif
