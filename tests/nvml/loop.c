/* The cheapest possible watcher: the calls of one tick, straight from C. Benchmarks compare with it. */
#define _GNU_SOURCE
#include "entry.h"

#include <time.h>

API nvmlReturn_t nvmlInit_v2(void);
API nvmlReturn_t nvmlShutdown(void);
API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *);
API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned, nvmlDevice_t *);
API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t, nvmlUtilization_t *);
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t *);
API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, unsigned, unsigned *);
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, unsigned, unsigned *);
API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t, unsigned *);
API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t, u64 *);
API nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t, unsigned *);
API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t, unsigned *, unsigned *);
API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t, unsigned *, unsigned *);

typedef struct {
    nvmlUtilization_t utilization;
    nvmlMemory_v2_t memory;
    unsigned celsius, sm_mhz, mem_mhz, fan, pstate, encoder, decoder, period_us;
    u64 reasons;
    nvmlFieldValue_t field[4];
    int fields;
} Reading;

/* The calls in bits of `skip` are those that this GPU does not support; the result adds what it finds out. */
static unsigned tick(nvmlDevice_t device, Reading *reading, unsigned skip)
{
    unsigned call = 0;
#define DO(expression) \
    do { \
        if (!(skip & 1u << call) && (expression) == NVML_ERROR_NOT_SUPPORTED) \
            skip |= 1u << call; \
        call++; \
    } while (0)
    DO(nvmlDeviceGetUtilizationRates(device, &reading->utilization));
    DO(nvmlDeviceGetMemoryInfo_v2(device, &reading->memory));
    DO(nvmlDeviceGetTemperature(device, 0, &reading->celsius));
    DO(nvmlDeviceGetFieldValues(device, reading->fields, reading->field));
    DO(nvmlDeviceGetClockInfo(device, NVML_CLOCK_SM, &reading->sm_mhz));
    DO(nvmlDeviceGetClockInfo(device, NVML_CLOCK_MEM, &reading->mem_mhz));
    DO(nvmlDeviceGetFanSpeed(device, &reading->fan));
    DO(nvmlDeviceGetCurrentClocksEventReasons(device, &reading->reasons));
    DO(nvmlDeviceGetPerformanceState(device, &reading->pstate));
    DO(nvmlDeviceGetEncoderUtilization(device, &reading->encoder, &reading->period_us));
    DO(nvmlDeviceGetDecoderUtilization(device, &reading->decoder, &reading->period_us));
#undef DO
    return skip;
}

static void drop_unsupported_fields(Reading *reading)
{
    int kept = 0;
    for (int i = 0; i < reading->fields; i++)
        if (reading->field[i].nvmlReturn != NVML_ERROR_NOT_SUPPORTED)
            reading->field[kept++] = reading->field[i];
    reading->fields = kept;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Reads every GPU `ticks` times and returns the seconds that took, or -1 where NVML does not start. */
API double pulsetrain_test_loop(unsigned ticks)
{
    static const unsigned fields[] = {
        NVML_FI_POWER_INSTANT, NVML_FI_POWER_AVERAGE, NVML_FI_TOTAL_ENERGY, NVML_FI_MEMORY_TEMP};
    nvmlDevice_t device[MAX_GPUS];
    Reading reading[MAX_GPUS] = {0};
    unsigned skip[MAX_GPUS] = {0}, gpus = 0;
    if (nvmlInit_v2() != NVML_SUCCESS)
        return -1;
    nvmlDeviceGetCount_v2(&gpus);
    for (unsigned i = 0; i < gpus; i++) {
        nvmlDeviceGetHandleByIndex_v2(i, &device[i]);
        reading[i].memory.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2);
        for (reading[i].fields = 0; reading[i].fields < 4; reading[i].fields++)
            reading[i].field[reading[i].fields].fieldId = fields[reading[i].fields];
        skip[i] = tick(device[i], &reading[i], 0);
        drop_unsupported_fields(&reading[i]);
    }
    double begin = seconds();
    for (unsigned t = 0; t < ticks; t++)
        for (unsigned i = 0; i < gpus; i++)
            skip[i] = tick(device[i], &reading[i], skip[i]);
    double took = seconds() - begin;
    nvmlShutdown();
    return took;
}
