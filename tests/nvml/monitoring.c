/* What NVML measures and watches for its caller: GPM metrics between two moments, and critical events. */
#include "entry.h"

#include <stdlib.h>

/* ---- GPM ---- */

#define GPM_VERSION 1
#define MB_PER_MIB (MIB / 1e6)

struct nvmlGpmSample_st {
    unsigned gpu;
    unsigned gpu_instance;
    double t; /* -1: nothing sampled yet */
};

/* Each metric is a signal, in the unit of the metric by `factor`. */
static const struct {
    unsigned id;
    Signal signal;
    double factor;
    const char *short_name, *long_name, *unit;
} gpm_metrics[] = {
    {NVML_GPM_GRAPHICS_UTIL, SIGNAL_util, 1, "GRACT", "Graphics Engine Active", "%"},
    {NVML_GPM_SM_UTIL, SIGNAL_util, 0.85, "SMACT", "SM Activity", "%"},
    {NVML_GPM_SM_OCCUPANCY, SIGNAL_util, 0.5, "SMOCC", "SM Occupancy", "%"},
    {NVML_GPM_ANY_TENSOR_UTIL, SIGNAL_tensor, 1, "TENSO", "Tensor Activity", "%"},
    {NVML_GPM_HMMA_TENSOR_UTIL, SIGNAL_tensor, 1, "HMMA", "HMMA Tensor Activity", "%"},
    {NVML_GPM_DRAM_BW_UTIL, SIGNAL_memory_util, 1, "DRAMA", "DRAM Activity", "%"},
    {NVML_GPM_FP32_UTIL, SIGNAL_util, 0.1, "FP32A", "FP32 Activity", "%"},
    {NVML_GPM_FP16_UTIL, SIGNAL_util, 0.05, "FP16A", "FP16 Activity", "%"},
    {NVML_GPM_PCIE_TX, SIGNAL_pcie_tx, 1 / MB_PER_MIB, "PCITX", "PCIe TX", "MiB/s"},
    {NVML_GPM_PCIE_RX, SIGNAL_pcie_rx, 1 / MB_PER_MIB, "PCIRX", "PCIe RX", "MiB/s"},
    {NVML_GPM_NVLINK_TX, SIGNAL_nvlink_tx, 1, "NVLTX", "NVLink TX", "MiB/s"},
    {NVML_GPM_NVLINK_RX, SIGNAL_nvlink_rx, 1, "NVLRX", "NVLink RX", "MiB/s"},
};

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    ENTER(nvmlGpmQueryDeviceSupport, device);
    REQUIRE(support, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(support->version == GPM_VERSION, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    support->isSupportedDevice = gpu->gpm;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    ENTER_SYSTEM(nvmlGpmSampleAlloc);
    REQUIRE(sample, NVML_ERROR_INVALID_ARGUMENT);
    *sample = malloc(sizeof **sample);
    REQUIRE(*sample, NVML_ERROR_MEMORY);
    (*sample)->t = -1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    ENTER_SYSTEM(nvmlGpmSampleFree);
    REQUIRE(sample, NVML_ERROR_INVALID_ARGUMENT);
    free(sample);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    ENTER(nvmlGpmSampleGet, device);
    REQUIRE(sample, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->gpm, NVML_ERROR_NOT_SUPPORTED);
    *sample = (struct nvmlGpmSample_st){gpu->index, NVML_NO_INSTANCE, NOW};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned gpu_instance, nvmlGpmSample_t sample)
{
    ENTER(nvmlGpmMigSampleGet, device);
    REQUIRE(sample, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->gpm && gpu->mig_enabled, NVML_ERROR_NOT_SUPPORTED);
    for (int i = 0; i < gpu->mig_count; i++)
        if (gpu->mig[i].gpu_instance == gpu_instance) {
            *sample = (struct nvmlGpmSample_st){gpu->index, gpu_instance, NOW};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t measure(const Gpu *gpu, double from, double to, nvmlGpmMetric_t *metric)
{
    for (size_t i = 0; i < sizeof gpm_metrics / sizeof *gpm_metrics; i++) {
        if (gpm_metrics[i].id != metric->metricId)
            continue;
        bool nvlink = metric->metricId >= NVML_GPM_NVLINK_RX;
        REQUIRE(!nvlink || gpu->model->nvlinks, NVML_ERROR_NOT_SUPPORTED);
        metric->value = curve_mean(&gpu->signal[gpm_metrics[i].signal], from, to) * gpm_metrics[i].factor;
        metric->metricInfo.shortName = gpm_metrics[i].short_name;
        metric->metricInfo.longName = gpm_metrics[i].long_name;
        metric->metricInfo.unit = gpm_metrics[i].unit;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request)
{
    ENTER_SYSTEM(nvmlGpmMetricsGet);
    REQUIRE(request, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(request->version == GPM_VERSION, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    const struct nvmlGpmSample_st *first = request->sample1, *second = request->sample2;
    REQUIRE(first && second && first->t >= 0 && second->t > first->t, NVML_ERROR_INVALID_ARGUMENT);
    bool same = first->gpu == second->gpu && first->gpu_instance == second->gpu_instance;
    REQUIRE(same, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < request->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &request->metrics[i];
        metric->nvmlReturn = measure(&machine->gpu[first->gpu], first->t, second->t, metric);
    }
    return NVML_SUCCESS;
}

/* ---- Events ---- */

struct nvmlEventSet_st {
    bool watches[MAX_GPUS];
    double since[MAX_GPUS]; /* what happened before a GPU was registered is not told */
    bool told[MAX_XIDS];
};

static u64 supported_events(const Gpu *gpu)
{
    u64 ecc = NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC;
    return NVML_EVENT_XID | NVML_EVENT_PSTATE | NVML_EVENT_CLOCK | (gpu->model->datacenter ? ecc : 0);
}

GETTER(nvmlDeviceGetSupportedEventTypes, u64, true, supported_events(gpu))

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    ENTER_SYSTEM(nvmlEventSetCreate);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    ENTER_SYSTEM(nvmlEventSetFree);
    REQUIRE(set, NVML_ERROR_INVALID_ARGUMENT);
    free(set);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    ENTER(nvmlDeviceRegisterEvents, device);
    REQUIRE(set && types, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!(types & ~supported_events(gpu)), NVML_ERROR_NOT_SUPPORTED);
    if (types & NVML_EVENT_XID) {
        set->watches[gpu->index] = true;
        set->since[gpu->index] = NOW;
    }
    return NVML_SUCCESS;
}

static bool tell_event(const Machine *machine, nvmlEventSet_t set, double t, nvmlEventData_t *data)
{
    int oldest = -1;
    for (int i = 0; i < machine->xid_count; i++) {
        const Xid *xid = &machine->xid[i];
        bool watched = set->watches[xid->gpu] && xid->at >= set->since[xid->gpu];
        bool due = watched && !set->told[i] && xid->at <= t;
        if (due && (oldest < 0 || xid->at < machine->xid[oldest].at))
            oldest = i;
    }
    if (oldest < 0)
        return false;
    const Xid *xid = &machine->xid[oldest];
    set->told[oldest] = true;
    *data = (nvmlEventData_t){
        handle_of(xid->gpu, -1), NVML_EVENT_XID, xid->xid, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return true;
}

static bool lost_one(const Machine *machine, const struct nvmlEventSet_st *set, double t)
{
    for (unsigned i = 0; i < machine->gpu_count; i++)
        if (set->watches[i] && gpu_is_lost(machine, &machine->gpu[i], t))
            return true;
    return false;
}

/* When something that the set watches happens next, at the latest at the deadline. */
static double next_moment(const Machine *machine, const struct nvmlEventSet_st *set, double t,
                          double deadline)
{
    double next = deadline;
    for (int i = 0; i < machine->xid_count; i++)
        if (set->watches[machine->xid[i].gpu] && machine->xid[i].at > t)
            next = fmin(next, machine->xid[i].at);
    for (unsigned i = 0; i < machine->gpu_count; i++)
        for (int k = 0; set->watches[i] && k < machine->gpu[i].lost_count; k++)
            if (machine->gpu[i].lost[k].from > t)
                next = fmin(next, machine->gpu[i].lost[k].from);
    return next;
}

/* One lost GPU makes the wait fail at once, for all GPUs of the set: who only retries will spin. */
API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    ENTER_SYSTEM(nvmlEventSetWait_v2);
    REQUIRE(set && data, NVML_ERROR_INVALID_ARGUMENT);
    double t = machine_now(machine), deadline = t + timeout_ms / 1e3;
    for (;;) {
        if (tell_event(machine, set, t, data))
            return NVML_SUCCESS;
        if (lost_one(machine, set, t))
            return machine->lost_error;
        if (t >= deadline)
            return NVML_ERROR_TIMEOUT;
        pause_ns((long long)((next_moment(machine, set, t, deadline) - t) * 1e9) + 1);
        t = machine_now(machine);
    }
}
