/* What one GPU says about itself: identity, load, memory, temperature, power, clocks, links, errors. */
#define _GNU_SOURCE
#include "entry.h"

#include <stdio.h>
#include <string.h>

#define PCIE_WINDOW 0.020 /* NVML counts PCIe bytes for so long, and blocks meanwhile */
#define SAMPLE_EVERY 0.1
#define MOST_SAMPLES 120

/* ---- Finding a device ---- */

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER_SYSTEM(nvmlDeviceGetCount_v2);
    REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = machine->gpu_count;
    return NVML_SUCCESS;
}

static nvmlReturn_t find(const Machine *machine, Function function, unsigned gpu, int mig,
                         nvmlDevice_t *device)
{
    TRY(function_rule(machine, function, (int)gpu));
    const Gpu *found = &machine->gpu[gpu];
    if (found->lost_count && gpu_is_lost(machine, found, machine_now(machine)))
        return machine->lost_error;
    *device = handle_of(gpu, mig);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    ENTER_LOOKUP(nvmlDeviceGetHandleByIndex_v2);
    REQUIRE(device && index < machine->gpu_count, NVML_ERROR_INVALID_ARGUMENT);
    return find(machine, FUNCTION_nvmlDeviceGetHandleByIndex_v2, index, -1, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    ENTER_LOOKUP(nvmlDeviceGetHandleByUUID);
    REQUIRE(device && uuid, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < machine->gpu_count; i++) {
        const Gpu *gpu = &machine->gpu[i];
        if (strcmp(gpu->uuid, uuid) == 0)
            return find(machine, FUNCTION_nvmlDeviceGetHandleByUUID, i, -1, device);
        for (int k = 0; k < gpu->mig_count; k++)
            if (strcmp(gpu->mig[k].uuid, uuid) == 0)
                return find(machine, FUNCTION_nvmlDeviceGetHandleByUUID, i, k, device);
    }
    return NVML_ERROR_NOT_FOUND;
}

static unsigned bus_of(unsigned gpu) { return 4 + 3 * gpu; }

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    ENTER_LOOKUP(nvmlDeviceGetHandleByPciBusId_v2);
    REQUIRE(device && bus_id, NVML_ERROR_INVALID_ARGUMENT);
    unsigned domain = 0, bus, slot;
    bool with_domain = sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3;
    REQUIRE(with_domain || sscanf(bus_id, "%x:%x", &bus, &slot) == 2, NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned i = 0; i < machine->gpu_count; i++)
        if (domain == 0 && bus == bus_of(i))
            return find(machine, FUNCTION_nvmlDeviceGetHandleByPciBusId_v2, i, -1, device);
    return NVML_ERROR_NOT_FOUND;
}

/* ---- Identity ---- */

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned size)
{
    ENTER_ANY(nvmlDeviceGetName, device);
    const MigDevice *mig = subject.mig;
    if (!mig)
        return copy_text(name, size, gpu->model->name);
    char text[96], part[8] = "";
    if (mig->compute_slices != mig->gpu_slices)
        snprintf(part, sizeof part, "%uc.", mig->compute_slices);
    snprintf(text, sizeof text, "%s MIG %s%ug.%ugb", gpu->model->name, part, mig->gpu_slices,
             mig_nominal_gb(gpu, mig));
    return copy_text(name, size, text);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned size)
{
    ENTER_ANY(nvmlDeviceGetUUID, device);
    return copy_text(uuid, size, subject.mig ? subject.mig->uuid : gpu->uuid);
}

API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned size)
{
    ENTER(nvmlDeviceGetSerial, device);
    REQUIRE(gpu->model->datacenter, NVML_ERROR_NOT_SUPPORTED);
    return copy_text(serial, size, gpu->serial);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    ENTER(nvmlDeviceGetPciInfo_v3, device);
    REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
    *pci = (nvmlPciInfo_t){.bus = bus_of(gpu->index), .pciDeviceId = gpu->model->pci_device_id};
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    ENTER_ANY(nvmlDeviceGetCudaComputeCapability, device);
    REQUIRE(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)gpu->model->cuda_major;
    *minor = (int)gpu->model->cuda_minor;
    return NVML_SUCCESS;
}

GETTER(nvmlDeviceGetIndex, unsigned, true, gpu->index)
GETTER(nvmlDeviceGetMinorNumber, unsigned, true, gpu->index)
GETTER(nvmlDeviceGetBrand, unsigned, true, gpu->model->brand)
GETTER(nvmlDeviceGetArchitecture, unsigned, true, gpu->model->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned, true, gpu->model->cores)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned, true, gpu->model->memory_bus_bits)
GETTER(nvmlDeviceGetPersistenceMode, unsigned, true, gpu->model->datacenter)
GETTER(nvmlDeviceGetComputeMode, unsigned, true, 0)
GETTER(nvmlDeviceGetDisplayActive, unsigned, true, 0)
GETTER(nvmlDeviceGetDisplayMode, unsigned, true, 0)
GETTER(nvmlDeviceGetVirtualizationMode, unsigned, true, 0)

/* Driver models exist on Windows alone. */
API nvmlReturn_t nvmlDeviceGetDriverModel_v2(nvmlDevice_t device, unsigned *present, unsigned *pending)
{
    ENTER(nvmlDeviceGetDriverModel_v2, device);
    (void)present, (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- Load: not available where the GPU is split by MIG ---- */

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    ENTER(nvmlDeviceGetUtilizationRates, device);
    REQUIRE(rates, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!gpu->mig_enabled, NVML_ERROR_NOT_SUPPORTED);
    bool varies = gpu->signal[SIGNAL_util].varies || gpu->signal[SIGNAL_memory_util].varies;
    double t = varies ? NOW : 0;
    rates->gpu = (unsigned)lround(gpu_percent(gpu, SIGNAL_util, t));
    rates->memory = (unsigned)lround(gpu_percent(gpu, SIGNAL_memory_util, t));
    return NVML_SUCCESS;
}

#define CODEC(function, signal_name) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *percent, unsigned *sampling_period_us) \
    { \
        ENTER(function, device); \
        REQUIRE(percent && sampling_period_us, NVML_ERROR_INVALID_ARGUMENT); \
        REQUIRE(!gpu->mig_enabled, NVML_ERROR_NOT_SUPPORTED); \
        *percent = (unsigned)lround(gpu_percent(gpu, SIGNAL_##signal_name, NOW_FOR(signal_name))); \
        *sampling_period_us = 167000; \
        return NVML_SUCCESS; \
    }
CODEC(nvmlDeviceGetEncoderUtilization, encoder)
CODEC(nvmlDeviceGetDecoderUtilization, decoder)

static unsigned milliwatts(const Gpu *gpu, Sensor sensor, double t)
{
    return (unsigned)lround(gpu_power(gpu, sensor, t) * 1e3);
}

static unsigned sample_at(const Gpu *gpu, unsigned type, double t)
{
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES: return milliwatts(gpu, gpu->instant, t);
    case NVML_GPU_UTILIZATION_SAMPLES: return (unsigned)lround(gpu_percent(gpu, SIGNAL_util, t));
    default: return (unsigned)lround(gpu_percent(gpu, SIGNAL_memory_util, t));
    }
}

API nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, u64 last_seen_us,
                                      nvmlValueType_t *value_type, unsigned *count, nvmlSample_t *samples)
{
    ENTER(nvmlDeviceGetSamples, device);
    REQUIRE(value_type && count, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!gpu->mig_enabled && type <= NVML_MEMORY_UTILIZATION_SAMPLES, NVML_ERROR_NOT_SUPPORTED);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = MOST_SAMPLES;
        return NVML_SUCCESS;
    }
    unsigned room = *count, written = 0;
    double newest = floor(NOW / SAMPLE_EVERY);
    for (int i = MOST_SAMPLES - 1; i >= 0 && written < room; i--) {
        double t = (newest - i) * SAMPLE_EVERY;
        u64 us = (u64)(subject.machine->wall_us + t * 1e6);
        if (t >= 0 && us > last_seen_us)
            samples[written++] = (nvmlSample_t){us, {.uiVal = sample_at(gpu, type, t)}};
    }
    *count = written;
    return written ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- Memory ---- */

typedef struct { u64 total, reserved, used; } Memory;

static nvmlReturn_t read_memory(const Subject *subject, Memory *memory)
{
    const Gpu *gpu = subject->gpu;
    REQUIRE(gpu->model->memory_mib, NVML_ERROR_NOT_SUPPORTED);
    bool varies = gpu->process_count || gpu->signal[SIGNAL_memory].varies;
    double t = varies ? machine_now(subject->machine) : 0;
    if (subject->mig)
        *memory = (Memory){mig_memory_total(gpu, subject->mig), 0, mig_memory_used(gpu, subject->mig, t)};
    else
        *memory = (Memory){
            gpu->model->memory_mib * MIB, gpu->model->reserved_mib * MIB, gpu_memory_used(gpu, t)};
    if (memory->used > memory->total - memory->reserved)
        memory->used = memory->total - memory->reserved;
    return NVML_SUCCESS;
}

/* The older call counts what the driver reserved as used. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    ENTER_ANY(nvmlDeviceGetMemoryInfo, device);
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    Memory memory;
    TRY(read_memory(&subject, &memory));
    u64 used = memory.used + memory.reserved;
    *out = (nvmlMemory_t){.total = memory.total, .free = memory.total - used, .used = used};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    ENTER_ANY(nvmlDeviceGetMemoryInfo_v2, device);
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(out->version == NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    Memory memory;
    TRY(read_memory(&subject, &memory));
    out->total = memory.total;
    out->reserved = memory.reserved;
    out->used = memory.used;
    out->free = memory.total - memory.reserved - memory.used;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    ENTER_ANY(nvmlDeviceGetBAR1MemoryInfo, device);
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->memory_mib, NVML_ERROR_NOT_SUPPORTED);
    u64 total = 128 * 1024 * MIB, used = 5 * MIB;
    *out = (nvmlBAR1Memory_t){total, total - used, used};
    return NVML_SUCCESS;
}

/* ---- Temperature and fans ---- */

static unsigned celsius(const Subject *subject, Signal signal)
{
    const Curve *curve = &subject->gpu->signal[signal];
    return (unsigned)lround(curve_value(curve, curve->varies ? machine_now(subject->machine) : 0));
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *out)
{
    ENTER(nvmlDeviceGetTemperature, device);
    REQUIRE(out && sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    *out = celsius(&subject, SIGNAL_temperature);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    ENTER(nvmlDeviceGetTemperatureV, device);
    REQUIRE(out && out->sensorType == 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(out->version == NVML_STRUCT_VERSION(nvmlTemperature_t, 1), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    out->temperature = (int)celsius(&subject, SIGNAL_temperature);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *out)
{
    ENTER(nvmlDeviceGetTemperatureThreshold, device);
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    switch (threshold) {
    case NVML_THRESHOLD_SHUTDOWN: *out = gpu->model->shutdown_c; break;
    case NVML_THRESHOLD_SLOWDOWN: *out = gpu->model->slowdown_c; break;
    case NVML_THRESHOLD_MEM_MAX: *out = gpu->model->mem_max_c; break;
    case NVML_THRESHOLD_GPU_MAX: *out = gpu->model->gpu_max_c; break;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
    return *out ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

GETTER(nvmlDeviceGetNumFans, unsigned, gpu->model->fans, gpu->model->fans)
GETTER(nvmlDeviceGetFanSpeed, unsigned, gpu->model->fans, curve_value(&gpu->signal[SIGNAL_fan], NOW_FOR(fan)))

API nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned fan, unsigned *percent)
{
    ENTER(nvmlDeviceGetFanSpeed_v2, device);
    REQUIRE(gpu->model->fans, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(percent && fan < gpu->model->fans, NVML_ERROR_INVALID_ARGUMENT);
    *percent = (unsigned)curve_value(&gpu->signal[SIGNAL_fan], NOW_FOR(fan));
    return NVML_SUCCESS;
}

/* ---- Power and energy ---- */

#define USAGE_SENSOR (gpu->model->usage_is_average ? gpu->average : gpu->instant)

GETTER(nvmlDeviceGetPowerUsage, unsigned, true, milliwatts(gpu, USAGE_SENSOR, NOW))
GETTER(nvmlDeviceGetPowerManagementMode, unsigned, gpu->model->limit_w, 1)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, gpu->model->limit_w, gpu->model->limit_w * 1000)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, gpu->model->limit_w, gpu->model->limit_w * 1000)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, gpu->model->limit_w, gpu->model->limit_w * 1000)
GETTER(nvmlDeviceGetTotalEnergyConsumption, u64, gpu->counter != COUNTER_NONE, gpu_energy_counter(gpu, NOW))

API nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned *least,
                                                              unsigned *most)
{
    ENTER(nvmlDeviceGetPowerManagementLimitConstraints, device);
    REQUIRE(least && most, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->limit_w, NVML_ERROR_NOT_SUPPORTED);
    *least = gpu->model->min_limit_w * 1000;
    *most = gpu->model->max_limit_w * 1000;
    return NVML_SUCCESS;
}

/* ---- Clocks ---- */

static nvmlReturn_t clock_now(const Subject *subject, unsigned type, unsigned *mhz)
{
    REQUIRE(mhz && type < NVML_CLOCK_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    const Gpu *gpu = subject->gpu;
    const Curve *curve = &gpu->signal[type == NVML_CLOCK_MEM ? SIGNAL_mem_clock : SIGNAL_sm_clock];
    double value = curve_value(curve, curve->varies ? machine_now(subject->machine) : 0);
    *mhz = (unsigned)(type == NVML_CLOCK_VIDEO ? value * gpu->model->video_mhz / gpu->model->sm_mhz : value);
    return NVML_SUCCESS;
}

static nvmlReturn_t clock_most(const Subject *subject, unsigned type, unsigned *mhz)
{
    REQUIRE(mhz && type < NVML_CLOCK_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    const Model *model = subject->gpu->model;
    const unsigned most[NVML_CLOCK_COUNT] = {model->sm_mhz, model->sm_mhz, model->mem_mhz, model->video_mhz};
    *mhz = most[type];
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    ENTER(nvmlDeviceGetClockInfo, device);
    return clock_now(&subject, type, mhz);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    ENTER(nvmlDeviceGetMaxClockInfo, device);
    return clock_most(&subject, type, mhz);
}

API nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, unsigned type, unsigned id, unsigned *mhz)
{
    ENTER(nvmlDeviceGetClock, device);
    switch (id) {
    case NVML_CLOCK_ID_CURRENT: return clock_now(&subject, type, mhz);
    case NVML_CLOCK_ID_BOOST_MAX: return clock_most(&subject, type, mhz);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

static bool idle(const Subject *subject)
{
    const Curve *util = &subject->gpu->signal[SIGNAL_util];
    return gpu_percent(subject->gpu, SIGNAL_util, util->varies ? machine_now(subject->machine) : 0) < 0.5;
}

static u64 clock_reasons(const Subject *subject)
{
    const Gpu *gpu = subject->gpu;
    u64 bits = idle(subject) ? NVML_REASON_GPU_IDLE : 0;
    double t = gpu->reason_count ? machine_now(subject->machine) : 0;
    for (int i = 0; i < gpu->reason_count; i++)
        if (within(gpu->reason[i].when, t))
            bits |= gpu->reason[i].bits;
    return bits;
}

GETTER(nvmlDeviceGetCurrentClocksEventReasons, u64, true, clock_reasons(&subject))
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, true, clock_reasons(&subject))
GETTER(nvmlDeviceGetSupportedClocksEventReasons, u64, true, NVML_REASON_ALL)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, u64, true, NVML_REASON_ALL)

/* Datacenter boards stay in P0; the others compute in P2 and rest in P8. */
GETTER(nvmlDeviceGetPerformanceState, unsigned, true, gpu->model->datacenter ? 0 : idle(&subject) ? 8 : 2)

/* ---- Memory errors ---- */

/* What came before second 0 came before the driver was loaded: the volatile counters do not know it. */
static u64 ecc_errors(const Subject *subject, unsigned type, unsigned counter)
{
    const Gpu *gpu = subject->gpu;
    double t = gpu->ecc_count ? machine_now(subject->machine) : 0;
    u64 errors = 0;
    for (int i = 0; i < gpu->ecc_count; i++)
        if (gpu->ecc[i].type == type && within(gpu->ecc[i].when, t)
            && (counter == NVML_ECC_AGGREGATE || gpu->ecc[i].when.from >= 0))
            errors += gpu->ecc[i].errors;
    return errors;
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *present, unsigned *pending)
{
    ENTER(nvmlDeviceGetEccMode, device);
    REQUIRE(present && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->datacenter, NVML_ERROR_NOT_SUPPORTED);
    *present = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                             u64 *errors)
{
    ENTER(nvmlDeviceGetTotalEccErrors, device);
    REQUIRE(errors && type < 2 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->datacenter, NVML_ERROR_NOT_SUPPORTED);
    *errors = ecc_errors(&subject, type, counter);
    return NVML_SUCCESS;
}

/* All our errors are in device memory. */
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter,
                                                 unsigned place, u64 *errors)
{
    ENTER(nvmlDeviceGetMemoryErrorCounter, device);
    REQUIRE(errors && type < 2 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->model->datacenter, NVML_ERROR_NOT_SUPPORTED);
    *errors = place == 2 ? ecc_errors(&subject, type, counter) : 0;
    return NVML_SUCCESS;
}

static bool remaps_rows(const Gpu *gpu)
{
    return gpu->model->datacenter && gpu->model->architecture >= NVML_ARCH_AMPERE;
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable,
                                           unsigned *uncorrectable, unsigned *pending, unsigned *failure)
{
    ENTER(nvmlDeviceGetRemappedRows, device);
    REQUIRE(correctable && uncorrectable && pending && failure, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(remaps_rows(gpu), NVML_ERROR_NOT_SUPPORTED);
    *correctable = gpu->remapped[0];
    *uncorrectable = gpu->remapped[1];
    *pending = gpu->remapped[2];
    *failure = gpu->remapped[3];
    return NVML_SUCCESS;
}

/* ---- Links ---- */

GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, true, gpu->model->pcie_generation)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, true, gpu->model->pcie_generation)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, true, gpu->model->pcie_width)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, true, gpu->model->pcie_width)
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned, true, 0)

API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned direction,
                                             unsigned *kilobytes_per_second)
{
    ENTER(nvmlDeviceGetPcieThroughput, device);
    REQUIRE(kilobytes_per_second && direction <= NVML_PCIE_RX, NVML_ERROR_INVALID_ARGUMENT);
    if (subject.machine->pcie_latency_ns)
        pause_ns(subject.machine->pcie_latency_ns);
    double t = NOW;
    Signal signal = direction == NVML_PCIE_TX ? SIGNAL_pcie_tx : SIGNAL_pcie_rx;
    *kilobytes_per_second = (unsigned)(curve_mean(&gpu->signal[signal], t - PCIE_WINDOW, t) * 1e3);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    ENTER(nvmlDeviceGetNvLinkState, device);
    REQUIRE(gpu->model->nvlinks, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(active && link < gpu->model->nvlinks, NVML_ERROR_INVALID_ARGUMENT);
    *active = 1;
    return NVML_SUCCESS;
}

/* Boards that a switch connects, from Hopper on. */
API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *out)
{
    ENTER(nvmlDeviceGetGpuFabricInfoV, device);
    REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(out->version == NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->model->nvlinks && gpu->model->architecture >= NVML_ARCH_HOPPER, NVML_ERROR_NOT_SUPPORTED);
    out->state = NVML_FABRIC_COMPLETED;
    return NVML_SUCCESS;
}

/* ---- Fields ---- */

static nvmlReturn_t set_uint(nvmlFieldValue_t *field, bool supported, double value)
{
    REQUIRE(supported, NVML_ERROR_NOT_SUPPORTED);
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.uiVal = (unsigned)lround(value);
    return NVML_SUCCESS;
}

static nvmlReturn_t set_u64(nvmlFieldValue_t *field, bool supported, u64 value)
{
    REQUIRE(supported, NVML_ERROR_NOT_SUPPORTED);
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = value;
    return NVML_SUCCESS;
}

/* The scope is a link, or all of them. Raw bytes have the protocol on top of the data. */
static nvmlReturn_t nvlink_counter(const Gpu *gpu, nvmlFieldValue_t *field, double t)
{
    REQUIRE(gpu->model->nvlinks, NVML_ERROR_NOT_SUPPORTED);
    bool all = field->scopeId == UINT_MAX;
    REQUIRE(all || field->scopeId < gpu->model->nvlinks, NVML_ERROR_INVALID_ARGUMENT);
    bool sent = field->fieldId == NVML_FI_NVLINK_DATA_TX || field->fieldId == NVML_FI_NVLINK_RAW_TX;
    bool raw = field->fieldId >= NVML_FI_NVLINK_RAW_TX;
    double mib = curve_integral(&gpu->signal[sent ? SIGNAL_nvlink_tx : SIGNAL_nvlink_rx], 0, t);
    double kib = mib * 1024 / (all ? 1 : gpu->model->nvlinks) * (raw ? 1.2 : 1);
    return set_u64(field, true, (u64)kib);
}

#define FIRST_REMAPPED NVML_FI_REMAPPED_CORRECTABLE

static nvmlReturn_t read_field(const Subject *subject, nvmlFieldValue_t *field, double t)
{
    const Gpu *gpu = subject->gpu;
    const Model *model = gpu->model;
    bool whole_gpu = field->scopeId == 0; /* other boards have power of the module and the memory, too */
    TRY(field_rule(subject, field->fieldId));
    switch (field->fieldId) {
    case NVML_FI_POWER_INSTANT:
        return set_uint(field, model->power_instant_field && whole_gpu, milliwatts(gpu, gpu->instant, t));
    case NVML_FI_POWER_AVERAGE:
        return set_uint(field, model->power_average_field && whole_gpu, milliwatts(gpu, gpu->average, t));
    case NVML_FI_TOTAL_ENERGY:
        return set_u64(field, gpu->counter != COUNTER_NONE, gpu_energy_counter(gpu, t));
    case NVML_FI_MEMORY_TEMP:
        return set_uint(field, model->mem_max_c, curve_value(&gpu->signal[SIGNAL_memory_temperature], t));
    case NVML_FI_ECC_SBE_VOLATILE:
        return set_u64(field, model->datacenter,
                       ecc_errors(subject, NVML_MEMORY_ERROR_CORRECTED, NVML_ECC_VOLATILE));
    case NVML_FI_ECC_SBE_AGGREGATE:
        return set_u64(field, model->datacenter,
                       ecc_errors(subject, NVML_MEMORY_ERROR_CORRECTED, NVML_ECC_AGGREGATE));
    case NVML_FI_ECC_DBE_VOLATILE:
        return set_u64(field, model->datacenter,
                       ecc_errors(subject, NVML_MEMORY_ERROR_UNCORRECTED, NVML_ECC_VOLATILE));
    case NVML_FI_ECC_DBE_AGGREGATE:
        return set_u64(field, model->datacenter,
                       ecc_errors(subject, NVML_MEMORY_ERROR_UNCORRECTED, NVML_ECC_AGGREGATE));
    case NVML_FI_NVLINK_DATA_TX:
    case NVML_FI_NVLINK_DATA_RX:
    case NVML_FI_NVLINK_RAW_TX:
    case NVML_FI_NVLINK_RAW_RX:
        return nvlink_counter(gpu, field, t);
    case NVML_FI_NVLINK_LINK_COUNT:
        return set_uint(field, model->nvlinks, model->nvlinks);
    case NVML_FI_RECOVERY_ACTION:
        return set_uint(field, model->datacenter, 0);
    case NVML_FI_PCIE_REPLAY:
        return set_uint(field, true, 0);
    case NVML_FI_REMAPPED_CORRECTABLE:
    case NVML_FI_REMAPPED_UNCORRECTABLE:
    case NVML_FI_REMAPPED_PENDING:
    case NVML_FI_REMAPPED_FAILURE:
        return set_uint(field, remaps_rows(gpu), gpu->remapped[field->fieldId - FIRST_REMAPPED]);
    case NVML_FI_POWER_MIN_LIMIT:
        return set_uint(field, model->min_limit_w, model->min_limit_w * 1e3);
    case NVML_FI_POWER_MAX_LIMIT:
        return set_uint(field, model->max_limit_w, model->max_limit_w * 1e3);
    case NVML_FI_POWER_DEFAULT_LIMIT:
    case NVML_FI_POWER_CURRENT_LIMIT:
        return set_uint(field, model->limit_w, model->limit_w * 1e3);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *fields)
{
    ENTER(nvmlDeviceGetFieldValues, device);
    REQUIRE(count > 0 && fields, NVML_ERROR_INVALID_ARGUMENT);
    double t = NOW;
    for (int i = 0; i < count; i++) {
        fields[i].timestamp = (long long)(subject.machine->wall_us + t * 1e6);
        fields[i].latencyUsec = subject.machine->latency_ns / 1000;
        fields[i].nvmlReturn = read_field(&subject, &fields[i], t);
    }
    return NVML_SUCCESS;
}
