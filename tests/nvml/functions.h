/* Every function of NVML that this library has, by the names that scenarios and call counters use. */
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#define FUNCTIONS(X) \
    X(nvmlInit_v2) \
    X(nvmlInitWithFlags) \
    X(nvmlShutdown) \
    X(nvmlSystemGetDriverVersion) \
    X(nvmlSystemGetNVMLVersion) \
    X(nvmlSystemGetCudaDriverVersion) \
    X(nvmlSystemGetCudaDriverVersion_v2) \
    X(nvmlDeviceGetCount_v2) \
    X(nvmlDeviceGetHandleByIndex_v2) \
    X(nvmlDeviceGetHandleByUUID) \
    X(nvmlDeviceGetHandleByPciBusId_v2) \
    X(nvmlDeviceGetIndex) \
    X(nvmlDeviceGetName) \
    X(nvmlDeviceGetUUID) \
    X(nvmlDeviceGetSerial) \
    X(nvmlDeviceGetMinorNumber) \
    X(nvmlDeviceGetPciInfo_v3) \
    X(nvmlDeviceGetBrand) \
    X(nvmlDeviceGetArchitecture) \
    X(nvmlDeviceGetCudaComputeCapability) \
    X(nvmlDeviceGetNumGpuCores) \
    X(nvmlDeviceGetMemoryBusWidth) \
    X(nvmlDeviceGetUtilizationRates) \
    X(nvmlDeviceGetEncoderUtilization) \
    X(nvmlDeviceGetDecoderUtilization) \
    X(nvmlDeviceGetSamples) \
    X(nvmlDeviceGetMemoryInfo) \
    X(nvmlDeviceGetMemoryInfo_v2) \
    X(nvmlDeviceGetBAR1MemoryInfo) \
    X(nvmlDeviceGetTemperature) \
    X(nvmlDeviceGetTemperatureV) \
    X(nvmlDeviceGetTemperatureThreshold) \
    X(nvmlDeviceGetPowerUsage) \
    X(nvmlDeviceGetEnforcedPowerLimit) \
    X(nvmlDeviceGetPowerManagementMode) \
    X(nvmlDeviceGetPowerManagementLimit) \
    X(nvmlDeviceGetPowerManagementDefaultLimit) \
    X(nvmlDeviceGetPowerManagementLimitConstraints) \
    X(nvmlDeviceGetTotalEnergyConsumption) \
    X(nvmlDeviceGetFieldValues) \
    X(nvmlDeviceGetFanSpeed) \
    X(nvmlDeviceGetFanSpeed_v2) \
    X(nvmlDeviceGetNumFans) \
    X(nvmlDeviceGetClockInfo) \
    X(nvmlDeviceGetMaxClockInfo) \
    X(nvmlDeviceGetClock) \
    X(nvmlDeviceGetCurrentClocksEventReasons) \
    X(nvmlDeviceGetCurrentClocksThrottleReasons) \
    X(nvmlDeviceGetSupportedClocksEventReasons) \
    X(nvmlDeviceGetSupportedClocksThrottleReasons) \
    X(nvmlDeviceGetPerformanceState) \
    X(nvmlDeviceGetEccMode) \
    X(nvmlDeviceGetTotalEccErrors) \
    X(nvmlDeviceGetMemoryErrorCounter) \
    X(nvmlDeviceGetRemappedRows) \
    X(nvmlDeviceGetCurrPcieLinkGeneration) \
    X(nvmlDeviceGetCurrPcieLinkWidth) \
    X(nvmlDeviceGetMaxPcieLinkGeneration) \
    X(nvmlDeviceGetMaxPcieLinkWidth) \
    X(nvmlDeviceGetPcieThroughput) \
    X(nvmlDeviceGetPcieReplayCounter) \
    X(nvmlDeviceGetNvLinkState) \
    X(nvmlDeviceGetGpuFabricInfoV) \
    X(nvmlDeviceGetPersistenceMode) \
    X(nvmlDeviceGetComputeMode) \
    X(nvmlDeviceGetDisplayActive) \
    X(nvmlDeviceGetDisplayMode) \
    X(nvmlDeviceGetDriverModel_v2) \
    X(nvmlDeviceGetVirtualizationMode) \
    X(nvmlDeviceGetComputeRunningProcesses_v3) \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3) \
    X(nvmlDeviceGetProcessUtilization) \
    X(nvmlDeviceGetMigMode) \
    X(nvmlDeviceGetMaxMigDeviceCount) \
    X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    X(nvmlDeviceIsMigDeviceHandle) \
    X(nvmlDeviceGetGpuInstanceId) \
    X(nvmlDeviceGetComputeInstanceId) \
    X(nvmlDeviceGetAttributes_v2) \
    X(nvmlGpmQueryDeviceSupport) \
    X(nvmlGpmSampleAlloc) \
    X(nvmlGpmSampleFree) \
    X(nvmlGpmSampleGet) \
    X(nvmlGpmMigSampleGet) \
    X(nvmlGpmMetricsGet) \
    X(nvmlDeviceGetSupportedEventTypes) \
    X(nvmlDeviceRegisterEvents) \
    X(nvmlEventSetCreate) \
    X(nvmlEventSetFree) \
    X(nvmlEventSetWait_v2)

typedef enum {
#define X(name) FUNCTION_##name,
    FUNCTIONS(X)
#undef X
    FUNCTION_COUNT
} Function;

extern const char *const function_names[FUNCTION_COUNT];

#endif
