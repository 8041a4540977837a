/* A disk that stops answering: once the file $TEST_HANG exists, write() to a training file does not return. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t write(int fd, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "write");
    const char *flag = getenv("TEST_HANG");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    while (flag && strstr(path, "training_metrics_") && access(flag, F_OK) == 0)
        usleep(10000);
    return real(fd, data, size);
}
