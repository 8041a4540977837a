/* The part of NVML's interface that nvidia-ml-py, nvitop and gpustat use: codes and structures. */
#ifndef NVML_H
#define NVML_H

#include <limits.h>

typedef unsigned long long u64;

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

#define NVML_VALUE_NOT_AVAILABLE ULLONG_MAX
#define NVML_NO_INSTANCE UINT_MAX /* GPU and compute instance of whatever does not run under MIG */

/* A versioned structure carries its own size, so that a caller with another layout is refused. */
#define NVML_STRUCT_VERSION(type, version) ((unsigned)(sizeof(type) | ((version) << 24)))
#define NVML_LAYOUT(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

enum { NVML_BRAND_TESLA = 2, NVML_BRAND_GEFORCE = 5, NVML_BRAND_NVIDIA = 14 };

enum {
    NVML_ARCH_PASCAL = 4,
    NVML_ARCH_VOLTA = 5,
    NVML_ARCH_TURING = 6,
    NVML_ARCH_AMPERE = 7,
    NVML_ARCH_ADA = 8,
    NVML_ARCH_HOPPER = 9,
    NVML_ARCH_BLACKWELL = 10,
};

enum { NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_CLOCK_VIDEO, NVML_CLOCK_COUNT };
enum { NVML_CLOCK_ID_CURRENT, NVML_CLOCK_ID_APP_TARGET, NVML_CLOCK_ID_APP_DEFAULT, NVML_CLOCK_ID_BOOST_MAX };
enum { NVML_MEMORY_ERROR_CORRECTED, NVML_MEMORY_ERROR_UNCORRECTED };
enum { NVML_ECC_VOLATILE, NVML_ECC_AGGREGATE };
enum { NVML_FABRIC_COMPLETED = 3 };
enum { NVML_THRESHOLD_SHUTDOWN, NVML_THRESHOLD_SLOWDOWN, NVML_THRESHOLD_MEM_MAX, NVML_THRESHOLD_GPU_MAX };
enum { NVML_TOTAL_POWER_SAMPLES, NVML_GPU_UTILIZATION_SAMPLES, NVML_MEMORY_UTILIZATION_SAMPLES };
enum { NVML_PCIE_TX, NVML_PCIE_RX };

enum {
    NVML_REASON_GPU_IDLE = 0x1,
    NVML_REASON_ALL = 0x1ff,
};

enum {
    NVML_EVENT_SINGLE_BIT_ECC = 0x1,
    NVML_EVENT_DOUBLE_BIT_ECC = 0x2,
    NVML_EVENT_PSTATE = 0x4,
    NVML_EVENT_XID = 0x8,
    NVML_EVENT_CLOCK = 0x10,
};

typedef enum {
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
} nvmlValueType_t;

enum {
    NVML_FI_ECC_SBE_VOLATILE = 3,
    NVML_FI_ECC_DBE_VOLATILE = 4,
    NVML_FI_ECC_SBE_AGGREGATE = 5,
    NVML_FI_ECC_DBE_AGGREGATE = 6,
    NVML_FI_MEMORY_TEMP = 82,
    NVML_FI_TOTAL_ENERGY = 83,
    NVML_FI_NVLINK_LINK_COUNT = 91,
    NVML_FI_PCIE_REPLAY = 94,
    NVML_FI_NVLINK_DATA_TX = 138,
    NVML_FI_NVLINK_DATA_RX = 139,
    NVML_FI_NVLINK_RAW_TX = 140,
    NVML_FI_NVLINK_RAW_RX = 141,
    NVML_FI_REMAPPED_CORRECTABLE = 142,
    NVML_FI_REMAPPED_UNCORRECTABLE = 143,
    NVML_FI_REMAPPED_PENDING = 144,
    NVML_FI_REMAPPED_FAILURE = 145,
    NVML_FI_POWER_AVERAGE = 185,
    NVML_FI_POWER_INSTANT = 186,
    NVML_FI_POWER_MIN_LIMIT = 187,
    NVML_FI_POWER_MAX_LIMIT = 188,
    NVML_FI_POWER_DEFAULT_LIMIT = 189,
    NVML_FI_POWER_CURRENT_LIMIT = 190,
    NVML_FI_RECOVERY_ACTION = 230,
};

enum {
    NVML_GPM_GRAPHICS_UTIL = 1,
    NVML_GPM_SM_UTIL = 2,
    NVML_GPM_SM_OCCUPANCY = 3,
    NVML_GPM_ANY_TENSOR_UTIL = 5,
    NVML_GPM_HMMA_TENSOR_UTIL = 7,
    NVML_GPM_DRAM_BW_UTIL = 10,
    NVML_GPM_FP32_UTIL = 12,
    NVML_GPM_FP16_UTIL = 13,
    NVML_GPM_PCIE_TX = 20,
    NVML_GPM_PCIE_RX = 21,
    NVML_GPM_NVLINK_RX = 60,
    NVML_GPM_NVLINK_TX = 61,
};

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { u64 bar1Total, bar1Free, bar1Used; } nvmlBAR1Memory_t;

typedef struct {
    unsigned version;
    u64 total, reserved, free, used;
} nvmlMemory_v2_t;
NVML_LAYOUT(nvmlMemory_v2_t, 40);

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_t;
NVML_LAYOUT(nvmlTemperature_t, 12);

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
NVML_LAYOUT(nvmlPciInfo_t, 68);

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    unsigned status, cliqueId;
    unsigned char state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;
NVML_LAYOUT(nvmlGpuFabricInfo_v2_t, 36);

typedef struct {
    unsigned pid;
    u64 usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
NVML_LAYOUT(nvmlProcessInfo_t, 24);

typedef struct {
    unsigned pid;
    u64 timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
NVML_LAYOUT(nvmlProcessUtilizationSample_t, 32);

typedef union {
    double dVal;
    unsigned uiVal;
    u64 ullVal;
} nvmlValue_t;

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    nvmlValueType_t valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
NVML_LAYOUT(nvmlFieldValue_t, 40);

typedef struct {
    u64 timeStamp;
    nvmlValue_t sampleValue;
} nvmlSample_t;

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    u64 memorySizeMB;
} nvmlDeviceAttributes_t;
NVML_LAYOUT(nvmlDeviceAttributes_t, 40);

typedef struct {
    nvmlDevice_t device;
    u64 eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
NVML_LAYOUT(nvmlEventData_t, 32);

typedef struct {
    unsigned metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct { const char *shortName, *longName, *unit; } metricInfo;
} nvmlGpmMetric_t;
NVML_LAYOUT(nvmlGpmMetric_t, 40);

/* NVML's array has as many metrics as it knows, more in each release: only numMetrics may be touched. */
typedef struct {
    unsigned version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[];
} nvmlGpmMetricsGet_t;
NVML_LAYOUT(nvmlGpmMetricsGet_t, 24);

typedef struct { unsigned version, isSupportedDevice; } nvmlGpmSupport_t;

#endif
