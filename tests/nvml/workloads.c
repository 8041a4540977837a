/* Who uses a GPU: processes, and the MIG devices it is split into. */
#include "entry.h"

#include <stddef.h>

#define UTILIZATION_EVERY (1.0 / 6) /* seconds between two samples of a process */
#define STALE_BY 10.0               /* seconds */
#define ABSURD_PERCENT 217          /* drivers do report such figures */

/* ---- Processes ---- */

static bool runs_on(const Subject *subject, const Process *process, double t)
{
    bool here = !subject->mig || (process->mig >= 0 && &subject->gpu->mig[process->mig] == subject->mig);
    return here && within(process->when, t);
}

static nvmlProcessInfo_t describe(const Gpu *gpu, const Process *process)
{
    nvmlProcessInfo_t info = {process->pid, process->bytes, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    if (process->mig >= 0) {
        info.gpuInstanceId = gpu->mig[process->mig].gpu_instance;
        info.computeInstanceId = gpu->mig[process->mig].compute_instance;
    }
    return info;
}

/* True for as many reads as the scenario says find a list that grew since its size was asked. */
static bool list_grew(const Gpu *gpu)
{
    _Atomic int *races = (_Atomic int *)&gpu->races;
    int left = atomic_load(races);
    while (left > 0)
        if (atomic_compare_exchange_weak(races, &left, left - 1))
            return true;
    return false;
}

/* Asked with too little room, NVML fails and says how much it needs; so callers ask twice. */
static nvmlReturn_t list_processes(const Subject *subject, ProcessKind kind, unsigned *count,
                                   nvmlProcessInfo_t *infos)
{
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    const Gpu *gpu = subject->gpu;
    unsigned room = infos ? *count : 0, found = 0;
    double t = gpu->process_count ? machine_now(subject->machine) : 0;
    for (int i = 0; i < gpu->process_count; i++) {
        const Process *process = &gpu->process[i];
        if (process->kind != kind || !runs_on(subject, process, t))
            continue;
        if (found < room)
            infos[found] = describe(gpu, process);
        found++;
    }
    if (found && infos && list_grew(gpu))
        found = room + 1;
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESS_LIST(function, kind) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *infos) \
    { \
        ENTER_ANY(function, device); \
        return list_processes(&subject, kind, count, infos); \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, PROCESS_COMPUTE)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, PROCESS_GRAPHICS)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, PROCESS_MPS)

/* One sample per busy process and sixth of a second; only those after the caller's last one. */
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                 unsigned *count, u64 last_seen_us)
{
    ENTER(nvmlDeviceGetProcessUtilization, device);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!gpu->mig_enabled, NVML_ERROR_NOT_SUPPORTED);
    unsigned room = samples ? *count : 0, found = 0;
    double t = floor(NOW / UTILIZATION_EVERY) * UTILIZATION_EVERY;
    bool stale = gpu->samples == SAMPLES_STALE;
    u64 us = (u64)(subject.machine->wall_us + (stale ? t - STALE_BY : t) * 1e6);
    for (int i = 0; i < gpu->process_count && (stale || us > last_seen_us); i++) {
        const Process *process = &gpu->process[i];
        if (!process->sm_percent || !runs_on(&subject, process, t))
            continue;
        unsigned sm = gpu->samples == SAMPLES_OVER_100 ? ABSURD_PERCENT : process->sm_percent;
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t){process->pid, us, sm, sm / 2, 0, 0};
        found++;
    }
    *count = found;
    REQUIRE(found, NVML_ERROR_NOT_FOUND);
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* ---- MIG ---- */

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *present, unsigned *pending)
{
    ENTER(nvmlDeviceGetMigMode, device);
    REQUIRE(present && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->mig, NVML_ERROR_NOT_SUPPORTED);
    *present = *pending = gpu->mig_enabled;
    return NVML_SUCCESS;
}

GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned, true, gpu->model->mig ? MAX_MIG : 0)

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
    ENTER(nvmlDeviceGetMigDeviceHandleByIndex, device);
    REQUIRE(mig && index < MAX_MIG, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->mig, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(index < (unsigned)gpu->mig_count, NVML_ERROR_NOT_FOUND);
    *mig = handle_of(gpu->index, (int)index);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig)
{
    ENTER_ANY(nvmlDeviceIsMigDeviceHandle, device);
    REQUIRE(is_mig, NVML_ERROR_INVALID_ARGUMENT);
    *is_mig = subject.mig != NULL;
    return NVML_SUCCESS;
}

/* The functions that only a MIG device answers. */
#define ENTER_MIG(function, device, out) \
    ENTER_ANY(function, device); \
    const MigDevice *mig = subject.mig; \
    REQUIRE(mig && (out), NVML_ERROR_INVALID_ARGUMENT)

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    ENTER_MIG(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device, parent);
    *parent = handle_of(gpu->index, -1);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id)
{
    ENTER_MIG(nvmlDeviceGetGpuInstanceId, device, id);
    *id = mig->gpu_instance;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id)
{
    ENTER_MIG(nvmlDeviceGetComputeInstanceId, device, id);
    *id = mig->compute_instance;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
    ENTER_MIG(nvmlDeviceGetAttributes_v2, device, attributes);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = gpu->model->multiprocessors * mig->compute_slices / 8 / 2 * 2,
        .sharedCopyEngineCount = mig->gpu_slices,
        .sharedDecoderCount = mig->gpu_slices,
        .gpuInstanceSliceCount = mig->gpu_slices,
        .computeInstanceSliceCount = mig->compute_slices,
        .memorySizeMB = mig_memory_total(gpu, mig) / MIB,
    };
    return NVML_SUCCESS;
}
